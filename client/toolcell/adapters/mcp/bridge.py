"""The server that a host talks to over a pair of streams, with one stay behind it.

When the host's input ends, its requests are cancelled, and they return when their tools have stopped; then the stay
ends, and with it whatever else it had.

The SDK settles by the first request which version a connection speaks, and takes `server/discover` for one of
2026-07-28. But a host that asks has not chosen yet: Copilot that has waited too long for the answer, as on a busy
machine, goes on with the handshake. So such a request is answered by itself, and the next one is the first.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, cast

import anyio
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from toolcell._version import VERSION

from .host_context import INSTRUCTIONS, Context, HostContext
from .host_session import HostSession
from .resources import templates
from .start.host_link import HostLink, Start
from .start.opening import Answered

__all__ = ["Bridge", "Handlers", "server"]


class Bridge:
    """One host on one side, one session on the other. Run it once."""

    def __init__(
        self,
        surroundings: HostContext,
        link: HostLink | None = None,
        answered: Answered | None = None,
        *,
        socket: str | None = None,
        daemon: Start = "start",
    ) -> None:
        """`link` and `answered` are from an `Opening`; default: there was none, and `socket` and `daemon` say where to connect."""
        self._surroundings = surroundings
        self._stay = HostSession(surroundings, link or HostLink(socket, daemon), answered)

    @property
    def busy(self) -> bool:
        """Whether a call runs."""
        return self._stay.busy

    async def run(
        self, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage]
    ) -> None:
        """Serve until the host ends its input. Cancelled, it leaves in the same way."""
        async with self._stay as stay:
            serving = server(stay)
            # Not arguments of the constructor, which warns that the protocol of 2026-07-28 has no such messages.
            serving.add_request_handler("logging/setLevel", types.SetLevelRequestParams, stay.set_level)
            serving.add_notification_handler(
                "notifications/roots/list_changed", types.NotificationParams, stay.roots_changed
            )
            while (item := await _next(read)) is not None:
                serving.instructions = self._surroundings.instructions(_capabilities(item))
                options = serving.create_initialization_options(NotificationOptions(tools_changed=True))
                if not _is_discovery(item):
                    await serving.run(_Resumed(item, read), write, options)
                    return
                await _answer(serving, item, write, options)


async def _next(read: ReadStream[SessionMessage | Exception]) -> SessionMessage | Exception | None:
    """What comes next; None where the host, or the transport, has ended the stream."""
    try:
        return await read.receive()
    except (anyio.EndOfStream, anyio.ClosedResourceError):
        return None


def _is_discovery(item: SessionMessage | Exception) -> bool:
    return (
        isinstance(item, SessionMessage)
        and isinstance(item.message, types.JSONRPCRequest)
        and item.message.method == "server/discover"
    )


def _capabilities(item: SessionMessage | Exception) -> Mapping[str, Any]:
    """What a host says that it can do, in its first message: in the handshake, and since 2026-07-28 with every request."""
    if not isinstance(item, SessionMessage) or not isinstance(item.message, types.JSONRPCRequest):
        return {}
    params: Mapping[str, Any] = item.message.params or {}
    if item.message.method == "initialize":
        said = params.get("capabilities")
    else:
        meta = params.get("_meta")
        said = (
            cast("Mapping[str, Any]", meta).get(types.CLIENT_CAPABILITIES_META_KEY)
            if isinstance(meta, dict)
            else None
        )
    return cast("Mapping[str, Any]", said) if isinstance(said, dict) else {}


async def _answer(
    serving: Server[Any],
    item: SessionMessage | Exception,
    write: WriteStream[SessionMessage],
    options: InitializationOptions,
) -> None:
    """Answer one request as if there were no other."""
    asked, asking = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    answering, answered = anyio.create_memory_object_stream[SessionMessage](1)
    async with asyncio.TaskGroup() as group:
        with asked, answered:
            group.create_task(serving.run(asking, answering, options), name="discovery")
            await asked.send(item)
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                # It does not hear it any more
                await write.send(await answered.receive())


class _Resumed:
    """A stream from which one item was taken, with that item again before the rest."""

    def __init__(
        self, first: SessionMessage | Exception, rest: ReadStream[SessionMessage | Exception]
    ) -> None:
        self._first: list[SessionMessage | Exception] = [first]
        self._rest = rest

    @property
    def last_context(self) -> contextvars.Context | None:
        """Whose the item was that came last; the SDK asks streams that know."""
        return getattr(self._rest, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._first.pop() if self._first else await self._rest.receive()

    async def aclose(self) -> None:
        await self._rest.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._first.pop() if self._first else await self._rest.__anext__()

    async def __aenter__(self) -> Self:
        await self._rest.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._rest.__aexit__(exc_type, exc_val, exc_tb)


class Handlers(Protocol):
    """What answers the requests of hosts: one stay, or the one of many that a request belongs to."""

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """The tools."""
        ...

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """A call."""
        ...

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """The outputs that were cut."""
        ...

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """A range of one."""
        ...

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """The ids of these."""
        ...

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams, /
    ) -> types.SubscriptionsListenResult:
        """A subscription to changes."""
        ...


def server(
    handlers: Handlers, schema: Callable[[str], Mapping[str, Any] | None] | None = None
) -> Server[Any]:
    """The SDK's server, which knows the protocol, with our handlers; `schema` is for what HTTP alone has."""
    return Server(
        "toolcell",
        version=VERSION,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=handlers.read_resource,
        on_subscribe_resource=_nothing_changes,
        on_unsubscribe_resource=_nothing_changes,
        on_completion=handlers.complete,
        on_subscriptions_listen=handlers.listen,
    )


async def _list_templates(
    _context: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=templates())


async def _nothing_changes(
    _context: Context, _params: types.SubscribeRequestParams | types.UnsubscribeRequestParams
) -> types.EmptyResult:
    """An output that is kept does not change, so a subscription to it has nothing to keep."""
    return types.EmptyResult()
