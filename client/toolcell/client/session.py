"""A client session with its catalog and its running calls; and `connect`, which opens one.

`Session.call` encodes a call into a CallState, the stream's writer sends it, and the connection's `_handle_event` ends
it. The arguments are encoded first, so that values that are not JSON raise here, before anything is sent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, ParamSpec

from toolcell._authoring.tool import Limits
from toolcell._session_reasons import DATA_BYTES_MAX, REASONS, SessionReason
from toolcell._version import VERSION
from toolcell.client._grpc.channel import Channel
from toolcell.client._launch.daemon import find
from toolcell.client._transport.connection import Connection
from toolcell.client._transport.json_values import encode_arguments
from toolcell.client._transport.outcomes import refused
from toolcell_proto.v1 import toolcell_pb2 as pb

from ._elicitation import with_forms
from ._grpc.methods import ToolCellMethods
from ._grpc.wire import PROTOCOL
from ._transport import tracing
from .call import Call, CallState
from .callbacks import SERVED, Answer, Ask, Service
from .catalog import Catalog
from .errors import Code, Refusal, Unavailable
from .events import Event
from .limits import encode_limits
from .offers import Offer, decode

NO_ASYNCIO = (
    "toolcell.client needs a running asyncio event loop, and there is none here; under trio or without a loop use "
    "toolcell.client.blocking, in trio by trio.to_thread.run_sync"
)
ENTERED = (
    "a session is entered: `async with connect() as session:`; in a notebook, for several cells: "
    "`stack = contextlib.AsyncExitStack(); session = await stack.enter_async_context(connect())`, and at the end "
    "`await stack.aclose()`"
)
_Arguments = ParamSpec("_Arguments")


class Session:
    """A client session with the daemon; `connect` opens it."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return (
            f"<Session {self.id} generation {self.catalog.generation}, {len(self._connection.calls)} calls>"
        )

    @property
    def id(self) -> str:
        """The id that the daemon gave; it changes when the daemon is restarted."""
        return self._connection.opening.session_id

    @property
    def resume_token(self) -> str:
        """The secret for `connect(resume=…)`, with which another process takes the session over."""
        return f"{self.id}.{self._connection.opening.resume_token}"

    @property
    def catalog(self) -> Catalog:
        """The newest snapshot of the directory's tools."""
        return self._connection.catalog

    @property
    def calls(self) -> Mapping[str, Call]:
        """A snapshot of the running calls by id, and of those that a resumed session already had."""
        running = {call_id: state.call for call_id, state in self._connection.calls.items()}
        return {**self._connection.resumed_calls, **running}

    def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        /,
        *,
        call_id: str | None = None,
        session_id: str = "",
        message_id: str = "",
        agent_name: str = "",
        parent_call_id: str | None = None,
        timeout: float | None = None,
        limits: Limits | None = None,
        traceparent: str = "",
        on_event: Callable[[Event], object] | None = None,
    ) -> Call:
        """Start a tool, and return its Call at once; await it for the Outcome.

        Args:
            tool: The name of the tool.
            arguments: Its arguments, as JSON values; default: none.
            call_id: The id of the call; the same id in a session is the same call and never runs twice. Default: random.
            session_id: The agent's own session id, for the tool's context; default: the daemon's.
            message_id: The agent's id of the message that requested the call; default: none.
            agent_name: Which of the agent's agents calls: "main" or the name of a sub-agent; default: none.
            parent_call_id: The call that this one is made for; default: within a service the requesting call, else none.
            timeout: Seconds from now until the call is stopped, the queue included and time in `ask` excluded;
                default: the configured limit.
            limits: Limits that lower the configured ones; default: none.
            traceparent: The trace that the call belongs to, as W3C writes it; default: none, and where this process
                traces with OpenTelemetry always its own.
            on_event: Called with each event as it is read; a plain function. What it raises aborts the call, and is
                raised by awaiting the call. Default: none, and the call can be iterated over.

        Raises:
            TypeError: The arguments are not JSON, or `on_event` is a coroutine function.
            ValueError: The arguments are not JSON, such as NaN, or the limits are invalid. Every other failure is in
                the Outcome.
        """
        encoded = encode_arguments(tool, arguments)
        lowered = encode_limits(limits, timeout)
        connection = self._connection
        if not call_id:
            call_id = f"c-{os.urandom(8).hex()}"
        known = connection.calls.get(call_id)
        if known is not None and known.same_request(tool, encoded):
            if on_event is not None:
                known.call.report(on_event)
            return known.call
        request = pb.AttachRequest()
        message = request.call  # filled in place: a message that is assigned is copied
        message.call_id = call_id
        message.tool = tool
        if session_id:
            message.session_id = session_id
        if message_id:
            message.message_id = message_id
        if agent_name:
            message.agent_name = agent_name
        if parent := SERVED.get() if parent_call_id is None else parent_call_id:
            message.parent_call_id = parent
        if lowered is not None:
            message.limits.CopyFrom(lowered)
        span = tracing.begin(tool, call_id)
        if span is not None:
            message.traceparent = span.traceparent
        elif traceparent:
            message.traceparent = traceparent
        state = CallState(request, encoded, connection, span)
        call = state.call
        if on_event is not None:
            call.report(on_event)
        if connection.closed_by is not None:
            state.end(refused(connection.closed_by))
        elif known is not None:
            state.end(refused(_id_in_use(known.call)))
        else:
            connection.submit(state, lowered.timeout_seconds if lowered is not None else 0.0)
        return call

    def detach(self) -> None:
        """Keep the session when the context is left, for `connect(resume=…)`: for the linger, in which its calls go on."""
        self._connection.detached = True

    async def reload(self) -> Catalog:
        """Scan the directory again, and return the new catalog, which `catalog` has too. Raises Refused."""
        return await self._connection.reload()

    async def described(self, seconds: float = 10, *, tool: str = "") -> Catalog:
        """Wait until every file is loaded, and return the catalog. `connect` waits 2 seconds.

        Args:
            seconds: The longest wait; default: 10.
            tool: Wait no longer than until the catalog has a tool of this name; default: for every file.
        """
        return await self._connection.described(seconds, tool)

    def tell(
        self, reason: SessionReason, data: Mapping[str, object] | None = None, *, session_id: str = ""
    ) -> None:
        """Tell the tools that want to hear it what has happened to the agent's session.

        Returns at once. What is told while the connection is lost is not told later.

        Args:
            reason: What has happened. "start" and "shutdown" are told by the daemon itself.
            data: What the agent says about it, JSON of at most 32 KiB; default: nothing.
            session_id: The agent's own id of the session; default: that of this one.

        Raises:
            TypeError: The data are not JSON.
            ValueError: There is no such reason, or the data are too large, or no JSON.
        """
        if reason not in REASONS:
            raise ValueError(f"reason is {reason!r}; it is one of {', '.join(REASONS)}")
        encoded = encode_arguments(reason, data)
        if len(encoded) > DATA_BYTES_MAX:
            raise ValueError(f"data has {len(encoded)} bytes, more than {DATA_BYTES_MAX}")
        event = pb.SessionEvent(reason=reason, data=encoded, session_id=session_id)
        self._connection.send(pb.AttachRequest(session_event=event))

    async def read_output(self, output_id: str, *, start: int = 0, length: int = 50_000) -> bytes:
        """Read a range of an output that was truncated.

        Args:
            output_id: The `Output.id`.
            start: The first byte, from 0; default: 0.
            length: The number of bytes, at least 1; default: 50000. There are fewer at the end of the output.

        Raises:
            Refused: The output does not exist or has expired.
            Unavailable: The connection to the daemon is lost.
            ValueError: `start` or `length` is out of range.
        """
        if start < 0 or length <= 0:
            raise ValueError(f"start is {start} and length is {length}; they must be at least 0 and 1")
        channel = self._channel()
        request = pb.ReadOutputRequest(
            output_id=output_id,
            session_id=self.id,
            resume_token=self._connection.opening.resume_token,
            start_bytes=start,
            length_bytes=length,
        )
        return b"".join([part.data async for part in channel.watch(ToolCellMethods.ReadOutput, request)])

    async def offers(self) -> tuple[Offer, ...]:
        """Return what the MCP servers of the directory offer beside tools: as they were last asked, and none is started.

        One is asked for by a call of `Offer.tool`, whose outcome has what was read as content.

        Raises:
            Refused: The daemon has no such session any more.
            Unavailable: The connection to the daemon is lost.
        """
        request = pb.ListOffersRequest(session_id=self.id, resume_token=self._connection.opening.resume_token)
        parts = self._channel().watch(ToolCellMethods.ListOffers, request)
        return tuple([decode(offer) async for part in parts for offer in part.offers])

    def _channel(self) -> Channel:
        """Return what single requests go by. Raises `Unavailable`."""
        if self._connection.line is None:
            raise Unavailable("The connection to the daemon is lost.", "Try again in a moment.")
        return self._connection.line[0]


class _Opening(AbstractAsyncContextManager["Session"]):
    """What `connect` returns: entering it opens the session, leaving it ends the session."""

    def __init__(self, session: AbstractAsyncContextManager[Session]) -> None:
        self._session = session

    async def __aenter__(self) -> Session:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(NO_ASYNCIO) from None
        return await self._session.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._session.__aexit__(kind, error, traceback)

    if not TYPE_CHECKING:  # checkers say it by themselves

        def __await__(self) -> NoReturn:
            raise TypeError(ENTERED)


def _entered(connect: Callable[_Arguments, AsyncGenerator[Session]]) -> Callable[_Arguments, _Opening]:
    manager = asynccontextmanager(connect)

    @wraps(connect)
    def opening(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Opening:
        return _Opening(manager(*args, **kwargs))

    return opening


@_entered
async def connect(
    address: str | None = None,
    *,
    agent: str = "python",
    directory: str | os.PathLike[str] = ".",
    resume: str | None = None,
    allow: Sequence[str] = ("*",),
    deny: Sequence[str] = (),
    limits: Limits | None = None,
    ask: Callable[[Ask], Awaitable[Answer]] | None = None,
    services: Mapping[str, Service] | None = None,
    on_catalog: Callable[[Catalog], object] | None = None,
    daemon: Literal["start", "running", "private"] = "start",
    linger: float | None = None,
    at_once: bool = False,
) -> AsyncGenerator[Session]:
    """Open a session with a daemon; leaving the context aborts the running calls and waits for them, unless `detach` was called.

    Args:
        address: The path of the daemon's socket, or "tls://HOST:PORT" of a machine that was joined; default: the user's.
        agent: The name of the calling program, for `ToolContext.agent`; default: "python".
        directory: The project directory whose tools the session sees; default: the current one. On another machine it is
            a path of that machine, and begins at the directory that was joined.
        resume: The `Session.resume_token` of a session to take over; default: a new session.
        allow: Patterns of the names of the tools that the session sees; default: all.
        deny: Patterns of the names of tools that it does not see; default: none.
        limits: Limits for every call, which lower the configured ones; default: none.
        ask: Called with an `Ask` for every question of a tool; returns True, False or "always", or raises
            `toolcell.Denied` with the reason for the tool. Default: all are denied.
        services: Functions by name that serve `context.request`, called as `service(call, **arguments)`; default: none.
            With "ui.question" alone "mcp.input" is served by it, for the forms of MCP servers and of FastMCP's `ctx.elicit`.
        on_catalog: Called with every new `Catalog`. Default: None, and the session does not follow changes.
        daemon: "start" (the default) starts the user's daemon if it does not run, "running" never starts one,
            "private" starts one that ends with the session.
        linger: Seconds for which calls go on after a lost connection; default: 10, and on another machine 2. Calls that
            cannot be resumed in that time end as `internal (connection_lost)`, on another machine as `internal (node_lost)`.
        at_once: Open without waiting for tool files that are still being loaded; their tools join the catalog later.
            Default: False, and opening waits for them for at most 2 seconds.

    Raises:
        Unavailable: The daemon cannot be reached or refuses the session; the text says what to do.
        ValueError: `limits` or `resume` is invalid, or the path of the directory is not UTF-8.
        RuntimeError: No asyncio event loop runs here; under trio, use `toolcell.client.blocking` in a thread.
    """
    session_id, secret = _split(resume) if resume is not None else ("", "")
    target = find(address, daemon)
    linger = target.linger_seconds if linger is None else linger
    services = with_forms(services)
    opening = pb.Open(
        protocol=PROTOCOL,
        client_version=VERSION,
        agent=agent,
        directory=_in_utf8(target.place(directory)),
        session_id=session_id,
        resume_token=secret,
        allow=allow,
        deny=deny,
        linger_seconds=linger,
        answers=ask is not None,
        limits=encode_limits(limits),
        follow=on_catalog is not None,
        services=services,
        at_once=at_once,
    )
    connection = Connection(target, opening, linger, ask, services, on_catalog)
    try:
        await connection.open()
        try:
            yield Session(connection)
        finally:
            await connection.leave()
    finally:
        await target.end()


def _split(resume: str) -> tuple[str, str]:
    session_id, dot, secret = resume.rpartition(".")
    if not dot or not session_id or not secret:
        raise ValueError(
            "resume is not a resume token; pass the value of Session.resume_token, SESSION.SECRET"
        )
    return session_id, secret


def _in_utf8(directory: str) -> str:
    try:
        directory.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the path of the directory is not UTF-8, and cannot be told to tools: {directory!a}"
        ) from None
    return directory


def _id_in_use(call: Call) -> Refusal:
    message = f"The call id {call.id} is taken by a call of {call.tool} with other arguments."
    return Refusal(Code.ALREADY_EXISTS, "call_exists", message)
