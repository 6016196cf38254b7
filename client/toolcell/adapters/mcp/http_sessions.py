"""Many hosts over HTTP: a session of its own for each MCP session, or for each host where the protocol has no sessions.

Up to 2025-11-25 a host opens a session, says its id with every request and deletes it in the end. Each is a `HostSession`
of its own, over the SDK's transport. What runs in a session ends with it: when it is deleted or idle for too long, or when
the server ends. By the protocol a host that only drops the connection of a call has not cancelled it; the call ends by its
own limits. The newest messages of a session are kept, so that the host can come back for the result.
There are so many places, and a host that is silent does not keep its own: for a new one, the session goes that was not used
for the longest time and has no request and no call under way. Its host gets 404 and opens another, as the protocol says.
Since 2026-07-28 every request stands alone, and closing its connection is the cancellation. Who gives itself the same
name and can answer questions, or cannot, shares a session, so that a host that comes back with an answer finds its call.

All hosts are served the directory that the server was started for: a client on the network does not choose
what is run.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
from mcp import MCPError, types
from mcp.server.streamable_http import (
    MCP_SESSION_ID_HEADER,
    EventCallback,
    EventMessage,
    EventStore,
    StreamableHTTPServerTransport,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from toolcell.adapters.http.auth import BODY_BYTES_MAX
from toolcell.adapters.mcp.bridge import Handler, serve, server
from toolcell.adapters.mcp.host.context import Context, HostContext, can_elicit, client_name
from toolcell.adapters.mcp.host.link import HostLink, Start
from toolcell.adapters.mcp.host.session import HostSession

PATH = "/mcp"

SESSIONS_MAX = 64  # of either kind; a person has a handful of hosts
IDLE_SECONDS = 1800.0  # without a request under way; a host that comes later opens another session
RETRY_MILLISECONDS = 1000  # before a host whose stream has broken comes back
EVENTS_MAX = 256  # of one session that are kept for that
EVENT_BYTES_MAX = 4 * 1024 * 1024  # of them together: a result with a picture, and the progress of many calls

K = TypeVar("K", str, tuple[str, bool])

_log = logging.getLogger("toolcell.mcp")


class HttpSessions:
    """An ASGI application, and an asynchronous context manager whose end is the end of all of them."""

    def __init__(
        self,
        directory: str,
        *,
        socket: str | None = None,
        daemon: Start = "start",
        timeout_seconds: float | None = None,
    ) -> None:
        self._directory = directory
        self._link = partial(HostLink, socket, daemon, timeout_seconds)
        serving = server(self._handler, self._schema)
        self._manager = StreamableHTTPSessionManager(
            serving, stateless=True, max_request_body_size=BODY_BYTES_MAX
        )
        self._running = self._manager.run()
        # All mutable state: the MCP sessions by their id, the sessions of hosts without one, the requests under way.
        self._group = asyncio.TaskGroup()
        self._sessions: dict[str, _McpSession] = {}
        self._guests: dict[tuple[str, bool], _HttpSession] = {}
        self._requests: set[anyio.CancelScope] = set()
        self._quiet = asyncio.Event()
        self._ending = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        await self._running.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Abort whatever runs, and return when it has stopped."""
        self._ending = True
        for session in list(self._sessions.values()):
            await session.transport.terminate()
        for scope in list(self._requests):
            scope.cancel()
        if self._requests:
            self._quiet.clear()
            await self._quiet.wait()
        for key in list(self._guests):
            self._dismiss(key)
        await self._running.__aexit__(kind, error, traceback)
        await self._group.__aexit__(kind, error, traceback)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._ending:
            await PlainTextResponse("The server ends.", 503)(scope, receive, send)
            return
        response = _Watched(send)
        with anyio.CancelScope() as request:
            self._requests.add(request)
            try:
                if _header(scope, MCP_PROTOCOL_VERSION_HEADER) in (None, *HANDSHAKE_PROTOCOL_VERSIONS):
                    await self._in_session(scope, receive, response)
                else:
                    await self._manager.handle_request(scope, receive, response)
            finally:
                self._requests.discard(request)
                if not self._requests:
                    self._quiet.set()
        if response.status is None:
            await PlainTextResponse("The server ends.", 503)(scope, receive, send)

    # With sessions

    async def _in_session(self, scope: Scope, receive: Receive, send: _Watched) -> None:
        session_id = _header(scope, MCP_SESSION_ID_HEADER)
        if session_id is not None:
            session = self._sessions.get(session_id)
            if session is None:
                await _error(404, "Session not found")(scope, receive, send)
            else:
                with session.used(scope["method"]):
                    await session.transport.handle_request(scope, receive, send)
                if (
                    session.transport.is_terminated
                ):  # its place is free, also while its calls are being aborted
                    self._sessions.pop(session_id, None)
            return
        if len(self._sessions) >= SESSIONS_MAX:
            idlest = _idlest(self._sessions)
            if idlest is None:
                text = f"All {SESSIONS_MAX} sessions have requests or calls under way; try again when one has ended."
                await _error(503, text)(scope, receive, send)
                return
            await self._sessions.pop(idlest).transport.terminate()
        session_id = os.urandom(16).hex()
        transport = StreamableHTTPServerTransport(
            session_id,
            event_store=RecentEvents(),
            retry_interval=RETRY_MILLISECONDS,
            idle_timeout=IDLE_SECONDS,
        )
        session = self._sessions[session_id] = _McpSession(transport, self._host())
        ready = asyncio.Event()
        self._group.create_task(self._session(session_id, session, ready), name=f"session {session_id}")
        try:
            with session.used("POST"):
                await ready.wait()
                await transport.handle_request(scope, receive, send)
        finally:
            if send.status is None or send.status >= 400:  # then it was no initialize
                with anyio.CancelScope(shield=True):
                    await transport.terminate()

    def _host(self) -> HostSession:
        surroundings = HostContext(f"mcp-{os.urandom(8).hex()}", self._directory, self._directory)
        return HostSession(surroundings, self._link())

    async def _session(self, session_id: str, session: _McpSession, ready: asyncio.Event) -> None:
        """One MCP session, to its end."""
        transport = session.transport
        try:
            async with transport.connect() as (read, write):
                ready.set()
                assert transport.idle_scope is not None
                with transport.idle_scope:
                    await serve(session.host, read, write)
        except Exception:  # noqa: BLE001  the SDK's, or ours; the other sessions are served
            _log.exception("An MCP session has failed.")
        finally:
            self._sessions.pop(session_id, None)
            if not transport.is_terminated:
                with anyio.CancelScope(shield=True):
                    await transport.terminate()

    # Without

    def _handler(self, name: str) -> Handler:
        """Return what answers a request by the session that it belongs to."""

        async def handle(context: Context, params: Any) -> Any:
            async with self._at(context) as session:
                return await session.handler(name)(context, params)

        return handle

    def _schema(self, tool: str) -> Mapping[str, Any] | None:
        """For the check of headers that repeat arguments; without earlier sessions there are none."""
        for guest in self._guests.values():
            catalog = guest.host.catalog
            if catalog is not None and tool in catalog.tools:
                return catalog.tools[tool].input_schema
        return None

    @asynccontextmanager
    async def _at(self, context: Context) -> AsyncGenerator[HostSession]:
        """The session of the host that sent a request, kept while the request lasts."""
        key = client_name(context), can_elicit(context)
        guest = self._guests.get(key)
        if guest is None:
            if len(self._guests) >= SESSIONS_MAX:
                idlest = _idlest(self._guests)
                if idlest is None:
                    raise MCPError(types.INTERNAL_ERROR, "Too many hosts have calls under way.")
                self._dismiss(idlest)
            guest = self._guests[key] = _HttpSession(self._host())
            self._group.create_task(self._guest(key, guest), name=f"host {key[0]}")
        guest.requests += 1
        if guest.leaves is not None:
            guest.leaves.cancel()
        try:
            await guest.there.wait()
            if guest.dismissed.is_set():
                raise MCPError(types.INTERNAL_ERROR, "The session has failed; try again.")
            yield guest.host
        finally:
            guest.requests -= 1
            guest.last_used = asyncio.get_running_loop().time()
            if guest.requests == 0 and self._guests.get(key) is guest:
                loop = asyncio.get_running_loop()
                guest.leaves = loop.call_later(IDLE_SECONDS, self._dismiss, key)

    async def _guest(self, key: tuple[str, bool], guest: _HttpSession) -> None:
        """One host's session, until it is dismissed."""
        try:
            async with guest.host:
                guest.there.set()
                await guest.dismissed.wait()
        except Exception:  # noqa: BLE001  ours; the other hosts are served
            _log.exception("The session of a host has failed.")
        finally:
            if self._guests.get(key) is guest:
                self._dismiss(key)
            guest.dismissed.set()
            guest.there.set()

    def _dismiss(self, key: tuple[str, bool]) -> None:
        guest = self._guests.pop(key)
        if guest.leaves is not None:
            guest.leaves.cancel()
        guest.dismissed.set()


class RecentEvents(EventStore):
    """The newest messages of one MCP session, for a host whose stream has broken."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str, types.JSONRPCMessage | None, int]] = deque()
        self._count = 0
        self._bytes = 0

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        """Keep a message, or with None the beginning of a stream; return its id. The oldest are dropped for it."""
        self._count += 1
        size = 0 if message is None else len(message.model_dump_json(by_alias=True, exclude_none=True))
        self._kept.append((self._count, stream_id, message, size))
        self._bytes += size
        while len(self._kept) > EVENTS_MAX or self._bytes > EVENT_BYTES_MAX:
            self._bytes -= self._kept.popleft()[-1]
        return str(self._count)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what followed an event in its stream; return the stream, None if the event is not kept any more."""
        kept = list(self._kept)  # sending waits, and meanwhile more may come
        stream = next((stream for number, stream, _, _ in kept if str(number) == last_event_id), None)
        for number, of, message, _ in kept:
            if of == stream and number > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class _McpSession:
    """A session of the protocol, and when it was used. A stream that a host listens to (GET) is no use."""

    def __init__(self, transport: StreamableHTTPServerTransport, host: HostSession) -> None:
        self.transport = transport
        self.host = host
        self.requests = 0
        self.last_used = asyncio.get_running_loop().time()

    @contextmanager
    def used(self, method: str) -> Generator[None]:
        """Within: a request is under way."""
        counts = method != "GET"
        self.requests += counts
        try:
            yield
        finally:
            self.requests -= counts
            if counts:
                self.last_used = asyncio.get_running_loop().time()


class _HttpSession:
    """A host without a session, and how many of its requests are under way."""

    def __init__(self, host: HostSession) -> None:
        self.host = host
        self.requests = 0
        self.last_used = 0.0
        self.leaves: asyncio.TimerHandle | None = None
        self.there = asyncio.Event()
        self.dismissed = asyncio.Event()


def _idlest(sessions: Mapping[K, _McpSession | _HttpSession]) -> K | None:
    """The key of the session that was not used for the longest time; None if all have something under way."""
    quiet = [
        (session.last_used, key)
        for key, session in sessions.items()
        if not session.requests and not session.host.busy
    ]
    return min(quiet)[1] if quiet else None


class _Watched:
    """A `send` that knows the status of what was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def _header(scope: Scope, name: str) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name.encode()), None)


def _error(status: int, message: str) -> PlainTextResponse:
    """An error of JSON-RPC that belongs to no request, as the SDK answers in such cases."""
    error = types.JSONRPCError(
        jsonrpc="2.0", id=None, error=types.ErrorData(code=types.INVALID_REQUEST, message=message)
    )
    return PlainTextResponse(
        error.model_dump_json(by_alias=True, exclude_unset=True), status, media_type="application/json"
    )
