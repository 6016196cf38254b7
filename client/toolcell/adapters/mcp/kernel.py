"""What the SDK does for a host on stdin and stdout: it reads and answers whatever `stdio.server` does not.

The SDK is called for one message at a time, by its handler kernel: `stdio.conversation` has the ids, the cancellation and
the requests of ours, and is the channel that handlers answer on. Which protocol is spoken is settled as the SDK settles it
on a stream: by the first request. Lists and calls of tools go to the handlers past the kernel, as they were validated when
they were read; their results are those that it would have made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

import anyio
from mcp import MCPError, types
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.context import ServerRequestContext
from mcp.server.runner import ServerRunner, modern_error_data, serve_one
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.jsonrpc_dispatcher import (
    cancelled_request_id_from_params,
    handler_exception_to_error_data,
    progress_token_from_params,
)
from mcp.shared.transport_context import TransportContext
from mcp_types import methods
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import to_json

from toolcell.client import ToolInfo

from .bridge import CHANGES, host_server
from .host.context import Context, HostContext, agent_of
from .host.link import HostLink
from .host.session import HostSession
from .stdio import wire
from .stdio.conversation import Conversation, Era, Exchange, PeerError, Settled, Work
from .stdio.requests import JsonRpcRequest
from .tool_call import HEARTBEAT_SECONDS, ToolCall

WRONG_ERA = (
    "this connection serves the handshake protocol era; "
    "requests carrying the 2026-07-28 envelope are not accepted on it"
)
NO_HANDSHAKE = "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted"

_log = logging.getLogger("toolcell.mcp")


class Kernel:
    """An asynchronous context manager: within, the host has its session."""

    def __init__(
        self, surroundings: HostContext, link: HostLink, conversation: Conversation, root: str | None
    ) -> None:
        """`root` is the host's first root, if it was asked for it and has one."""
        self._surroundings = surroundings
        self._conversation = conversation
        self._session = HostSession(surroundings, link, root)
        self._server = host_server(self._session)
        outbound = _Outbound(conversation)
        self._notifying = NotifyOnlyOutbound(outbound)
        self._runner = ServerRunner(self._server, Connection.for_loop(outbound), {})
        # All mutable state: whether the instructions are those for this host, the handshake that the connection knows, and
        # the newest envelope with what was made of it.
        self._instructed = False
        self._handshake: Mapping[str, Any] | None = None
        self._envelope: tuple[object, object, Connection] | None = None

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.__aexit__(kind, error, traceback)

    # Of the server

    async def resume(self, request: JsonRpcRequest, tools: Mapping[str, ToolInfo]) -> None:
        """Take over from a list that was answered with these tools."""
        await self._session.resume(self._context(Exchange(self._conversation, request.id), request), tools)

    def told_nothing(self) -> None:
        """Notify the host if there are resources or prompts: it was told that there are none."""
        self._session.offers.told_nothing()

    async def list_tools(self, exchange: Exchange, request: JsonRpcRequest) -> Mapping[str, Any]:
        """The result of `tools/list`. Raises PeerError."""
        try:
            value = {"tools": await self._session.offered(self._context(exchange, request))}
        except Exception as error:
            raise _peer_error(error, modern=request.host is not None) from error
        return value if request.host is None else wire.cacheable(value)

    def call(self, exchange: Exchange, request: JsonRpcRequest) -> None:
        """See to the answer of `tools/call`: without a task, as long as there is nothing to tell or to wait for before."""
        context = partial(self._context, exchange, request)
        talk = self._session.begin(self._agent(request), request, context)
        if talk is None:
            self._conversation.begin(exchange, partial(self.call_tool, request=request))
            return
        follow = partial(self._join, talk, request)
        self._conversation.hold(exchange, talk.abort, follow)
        sign = None
        if exchange.token is not None:
            sign = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, talk.give_sign)
        talk.follow(partial(self._heard, talk, exchange, request, follow, sign))

    def _heard(
        self,
        talk: ToolCall,
        exchange: Exchange,
        request: JsonRpcRequest,
        follow: Work,
        sign: asyncio.TimerHandle | None,
    ) -> None:
        """Answer a call that has ended; have a task tell what there is to tell of another."""
        if exchange.task is not None or (exchange.is_cancelled and talk.outcome is None):
            return
        if sign is not None:
            sign.cancel()
        if talk.outcome is None or not (talk.is_plain or exchange.is_cancelled):
            self._conversation.begin(exchange, follow)
            return
        try:
            line = line_of(request.id, self._result(request, talk.result(talk.outcome)))
        except Exception as error:  # noqa: BLE001  the session is not to end by it
            line = wire.failure(request.id, _peer_error(error, modern=request.host is not None).error)
        self._conversation.answer(exchange, line)

    async def _join(self, talk: ToolCall, request: JsonRpcRequest, exchange: Exchange) -> Mapping[str, Any]:
        """The result of a call that was begun. Raises PeerError."""
        try:
            answer = await self._session.join(talk, self._context(exchange, request))
            return self._result(request, answer)
        except Exception as error:
            raise _peer_error(error, modern=request.host is not None) from error

    async def call_tool(self, exchange: Exchange, request: JsonRpcRequest) -> Mapping[str, Any]:
        """The result of `tools/call`. Raises PeerError."""
        params = types.CallToolRequestParams.model_construct(
            name=request.params["name"], arguments=request.params.get("arguments")
        )
        try:
            answer = await self._session.answer(self._context(exchange, request), params)
            return self._result(request, answer)
        except Exception as error:
            raise _peer_error(error, modern=request.host is not None) from error

    def _result(
        self, request: JsonRpcRequest, answer: dict[str, Any] | types.InputRequiredResult
    ) -> Mapping[str, Any]:
        """A result as the host's version of the protocol has it."""
        if not isinstance(answer, dict) or any(block["type"] != "text" for block in answer["content"]):
            if not isinstance(answer, dict):
                answer = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
            answer = {"resultType": "complete", **answer}
            version = wire.MODERN_VERSION if request.host is not None else self._shaken().protocol_version
            answer = methods.serialize_server_result("tools/call", version, answer)
        return answer if request.host is None else wire.complete(answer)

    async def take(self, line: bytes, *, acknowledged: bool = False) -> None:
        """Read a line and see to its answer; `acknowledged` is a subscription whose host knows already that it holds."""
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            await self._conversation.write(wire.failure(None, refusal_of(error)))
            return
        match message:
            case types.JSONRPCRequest():
                await self._answer(message, acknowledged)
            case types.JSONRPCNotification(method=wire.CANCELLED, params=params):
                if (request_id := cancelled_request_id_from_params(params)) is not None:
                    self._conversation.cancel(request_id)
            case types.JSONRPCNotification(method=method, params=params):
                self._conversation.spawn(self._hear(method, params))
            case types.JSONRPCResponse(id=number, result=value):
                self._conversation.resolve(number, value)
            case types.JSONRPCError(id=number, error=wrong):
                if number is not None:
                    said = wrong.model_dump(by_alias=True, mode="json", exclude_unset=True)
                    self._conversation.resolve(number, PeerError(said))

    # Whatever else there is

    async def _answer(self, request: types.JSONRPCRequest, acknowledged: bool) -> None:
        method, params = request.method, request.params
        self._instruct(method, params)
        exchange = Exchange(self._conversation, request.id, progress_token_from_params(params))
        if method == "initialize" and self._conversation.era is not Era.MODERN:
            await self._initialize(exchange, params)  # in its place, as what follows may rely on it
            return
        enveloped = _meta_has(params, types.PROTOCOL_VERSION_META_KEY)
        if method not in ("server/discover", "initialize"):  # a discovery chooses no protocol
            self._conversation.settle(Settled.ENVELOPED if enveloped else Settled.BARE)
        era = self._conversation.era
        modern = era is Era.MODERN or (era is Era.OPEN and enveloped)
        dispatched = (_Acknowledged if acknowledged else _Dispatched)(exchange, asks=not modern)

        async def work(_: Exchange) -> Mapping[str, Any]:
            try:
                return await (self._modern if modern else self._legacy)(dispatched, method, params)
            except Exception as error:
                raise _peer_error(error, modern=modern) from error

        self._conversation.begin(exchange, work)

    def _instruct(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Give the server the instructions for the host of the first message; a discovery may be of another host."""
        if not self._instructed:
            self._instructed = not (method == "server/discover" and self._conversation.era is Era.OPEN)
            self._say_to(_capabilities(method, params))

    def _say_to(self, capabilities: Mapping[str, Any]) -> None:
        self._server.instructions = self._surroundings.instructions(capabilities)
        options = self._server.create_initialization_options(CHANGES)
        self._runner.init_options = options

    async def _initialize(self, exchange: Exchange, params: Mapping[str, Any] | None) -> None:
        assert exchange.id is not None
        try:
            value = await self._legacy(_Dispatched(exchange, asks=True), "initialize", params)
        except Exception as error:  # noqa: BLE001  it is the answer
            self._conversation.settle(Settled.BARE)
            await self._conversation.write(wire.failure(exchange.id, _peer_error(error, modern=False).error))
        else:
            self._conversation.settle(Settled.SHAKEN)
            await self._conversation.write(wire.result(exchange.id, value))

    async def _legacy(
        self, dispatched: _Dispatched, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        if method != "initialize" and _meta_has(params, types.PROTOCOL_VERSION_META_KEY):
            raise MCPError(types.INVALID_REQUEST, WRONG_ERA)
        self._shaken()
        return await self._runner.on_request(dispatched, method, params)

    async def _modern(
        self, dispatched: _Dispatched, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        if method == "initialize":
            raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, NO_HANDSHAKE, _supported(params))
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        connection = Connection.from_envelope(
            route.protocol_version, route.client_info, route.client_capabilities, outbound=self._notifying
        )
        return await serve_one(
            self._server, dispatched, method, params, connection=connection, lifespan_state={}
        )

    async def _hear(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Take in a notification."""
        modern = self._conversation.era is Era.MODERN
        runner = self._runner
        self._shaken()
        if modern:
            connection = Connection.from_envelope(LATEST_MODERN_VERSION, None, None, outbound=self._notifying)
            runner = ServerRunner(self._server, connection, {})
        dispatched = _Dispatched(Exchange(self._conversation, None), asks=not modern)
        await runner.on_notify(dispatched, method, params)

    # The host's connection, as the SDK has it

    def _agent(self, request: JsonRpcRequest) -> str:
        """The name of the host that sends a request."""
        if request.host is not None:
            return request.host.agent
        params = self._shaken().client_params
        return agent_of(params.client_info.name) if params is not None else ""

    def _context(self, exchange: Exchange, request: JsonRpcRequest) -> Context:
        modern = request.host is not None
        connection = self._enveloped(request) if modern else self._shaken()
        meta = cast("types.RequestParamsMeta", request.meta)
        session = ServerSession(_Dispatched(exchange, asks=not modern), connection, request_meta=meta)
        return ServerRequestContext(
            session=session,
            lifespan_context={},
            protocol_version=connection.protocol_version,
            method=request.method,
            params=request.params,
            request_id=exchange.id,
            meta=meta,
        )

    def _shaken(self) -> Connection:
        """The connection of a host that shakes hands; it is given a handshake that was answered without it."""
        connection = self._runner.connection
        handshake = self._conversation.handshake
        if handshake is not self._handshake and handshake is not None:
            self._handshake = handshake
            connection.client_params = types.InitializeRequestParams.model_validate(handshake, by_name=False)
            connection.protocol_version = connection.client_params.protocol_version
            self._instruct("initialize", handshake)
        return connection

    def _enveloped(self, request: JsonRpcRequest) -> Connection:
        """The connection of a request that stands alone; the same for requests that say the same of the host."""
        client, able = request.meta.get(wire.CLIENT_KEY), request.meta[wire.CAPABILITIES_KEY]
        if self._envelope is None or self._envelope[:2] != (client, able):
            connection = Connection.from_envelope(wire.MODERN_VERSION, client, able, outbound=self._notifying)
            self._envelope = client, able, connection
        return self._envelope[2]


class _Outbound:
    """The channel of the connection, as the SDK has it."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        try:
            return await self._conversation.request(method, params, (opts or {}).get("timeout"))
        except PeerError as error:
            data = types.ErrorData.model_validate(error.error)
            raise MCPError.from_error_data(data) from error

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        await self._conversation.notify(method, params)


class _Dispatched:
    """A request of the host, or a notification, as the SDK has it."""

    message_metadata = None

    def __init__(self, exchange: Exchange, *, asks: bool) -> None:
        """`asks`: whether the protocol has requests of a server."""
        self._exchange = exchange
        self.transport = TransportContext(kind="jsonrpc", can_send_request=asks)

    @property
    def request_id(self) -> types.RequestId | None:
        return self._exchange.id

    @property
    def can_send_request(self) -> bool:
        return self.transport.can_send_request and not self._exchange.ended

    @property
    def cancel_requested(self) -> anyio.Event:
        """Whether the host has cancelled; cancelling the task says so."""
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await _Outbound(self._exchange.conversation).send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        await self._exchange.notify(method, params)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._exchange.progress(progress, total, message)


class _Acknowledged(_Dispatched):
    """A subscription that was confirmed to its host already."""

    told = False

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        if self.told:
            await super().notify(method, params, opts)
        self.told = True


def line_of(request_id: wire.RequestId, value: Mapping[str, Any]) -> bytes:
    """A line as `wire.result` makes it, in a third of the steps; it makes those that have half a character, or are nested deeply."""
    try:
        return to_json({"jsonrpc": "2.0", "id": request_id, "result": value}) + b"\n"
    except ValueError:
        return wire.result(request_id, value)


def _peer_error(error: Exception, *, modern: bool) -> PeerError:
    """Make what a handler has raised the error that the SDK answers."""
    if isinstance(error, PeerError):
        return error
    found = modern_error_data(error) if modern else handler_exception_to_error_data(error)
    if found is None:
        _log.error("A request has failed.", exc_info=error)
        found = types.ErrorData(code=0, message=str(error))
    return PeerError(found.model_dump(by_alias=True, mode="json", exclude_unset=True))


def refusal_of(error: ValidationError) -> dict[str, Any]:
    """The error of JSON-RPC for a line that is no message."""
    if any(found["type"] == "json_invalid" for found in error.errors()):
        return {"code": wire.PARSE_ERROR, "message": "Parse error: the line is no JSON."}
    return {
        "code": wire.INVALID_REQUEST,
        "message": "Invalid request: the line is no message of JSON-RPC 2.0.",
    }


def _supported(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The answer to a handshake that comes after a request with an envelope."""
    supported, requested = list(MODERN_PROTOCOL_VERSIONS), (params or {}).get("protocolVersion")
    if not isinstance(requested, str):
        return {"supported": supported}
    data = types.UnsupportedProtocolVersionErrorData(supported=supported, requested=requested)
    return data.model_dump(mode="json")


def _capabilities(method: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What a host says that it can do, in its first message: in the handshake, and since 2026-07-28 with every request."""
    key = types.CLIENT_CAPABILITIES_META_KEY
    said: object = None
    if method == "initialize":
        said = (params or {}).get("capabilities")
    elif _meta_has(params, key):
        said = (params or {})["_meta"][key]
    return cast("Mapping[str, Any]", said) if isinstance(said, dict) else {}


def _meta_has(params: Mapping[str, Any] | None, key: str) -> bool:
    meta = (params or {}).get("_meta")
    return isinstance(meta, dict) and key in meta
