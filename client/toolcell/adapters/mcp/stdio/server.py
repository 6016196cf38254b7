"""One host on stdin and stdout: its messages in their order, and which are answered here.

Hot messages are answered here, as `HOT` says: the handshake, the lists and the calls of tools, `ping`, cancellation.
The lists of resources and prompts are kept until the tools are listed; a host that hears of changes is told that they are
empty, and notified if they are not.
Everything else is read and answered by the SDK (`toolcell.adapters.mcp.kernel`), on the same conversation: it knows what
was agreed on from the answers that are made here, so that no message is read twice.

Hosts wait for the first answers, some for one second only, and the SDK takes longer to import than all the rest of a start.
So it is imported when the tools have been listed, or before that where it is needed or the host is silent. Until then
messages for the SDK are kept, in their order; a call waits for it, as its result is made of the SDK's types.

Many hosts begin their first turn with the first list, so it waits for the files that are still being described.
The session that the tools were listed from becomes that of the host.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from toolcell.adapters import read_output
from toolcell.adapters.mcp.host.context import HostContext, elicits, root_directory
from toolcell.adapters.mcp.host.limits import DESCRIBED_SECONDS_MAX
from toolcell.adapters.mcp.host.link import HostLink, LinkCaller
from toolcell.adapters.pipes import LineTooLong, Pipes
from toolcell.client import ToolInfo, Unavailable

from . import wire
from .conversation import Conversation, Era, Exchange, PeerError, Settled
from .requests import Cancelled, FailedRequest, HostInfo, JsonRpcRequest, Method, Response, read, roots_of

SILENCE_SECONDS: Final = 0.2
"""Of a host that has not asked for the tools; then the import begins, as there is time for it."""
ROOTS_SECONDS: Final = 2.0
"""For a host that says it has roots and does not answer."""
KEPT_MAX: Final = 16
"""Messages that are kept for the SDK while it is imported; further ones wait in the pipe."""
CALL: Final = b'"tools/call"'
"""In a line that is likely to be a call; in one that writes it otherwise too rarely to be looked for."""
TURN_LINES_MAX: Final = 64
"""That are read before the tasks of their requests get a turn, when so many have come at once."""


class SdkKernel(Protocol):
    """What answers with the SDK; `toolcell.adapters.mcp.kernel` has the one."""

    async def resume(self, request: JsonRpcRequest, tools: Mapping[str, ToolInfo]) -> None:
        """Take over from a list that was answered with these tools."""
        ...

    def told_nothing(self) -> None:
        """Notify the host if there are resources or prompts: it was told that there are none."""
        ...

    async def take(self, line: bytes, *, acknowledged: bool = False) -> None:
        """Read a line and see to its answer; `acknowledged` is a subscription whose host knows already that it holds."""
        ...

    async def list_tools(self, exchange: Exchange, request: JsonRpcRequest) -> Mapping[str, Any]:
        """The result of `tools/list`. Raises PeerError."""
        ...

    def call(self, exchange: Exchange, request: JsonRpcRequest) -> None:
        """See to the answer of `tools/call`."""
        ...

    async def call_tool(self, exchange: Exchange, request: JsonRpcRequest) -> Mapping[str, Any]:
        """The result of `tools/call`. Raises PeerError."""
        ...


class Make(Protocol):
    """Makes a kernel; `root` is the first root of a host that was asked for it."""

    def __call__(
        self, surroundings: HostContext, link: HostLink, conversation: Conversation, root: str | None
    ) -> AbstractAsyncContextManager[SdkKernel]: ...


Load: TypeAlias = Callable[[], Make]
"""Imports the SDK, in a thread."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The first list: the request for it, what it had, and the host's first root, if it was asked for it and has one."""

    request: JsonRpcRequest
    tools: Mapping[str, ToolInfo]
    root: str | None


class StdioServer:
    """Serves one host. Run it once."""

    def __init__(self, surroundings: HostContext, link: HostLink, pipes: Pipes) -> None:
        self._surroundings = surroundings
        self._link = link
        self._pipes = pipes
        self._conversation = Conversation(pipes)
        # All mutable state: the kernel once it is there, whether it is wanted and whether it is to end, the lines that are
        # kept for it; the host that has shaken hands; the task of the first list, and what it had.
        self._kernel: asyncio.Future[SdkKernel] = asyncio.get_running_loop().create_future()
        self._wanted = asyncio.Event()
        self._over = asyncio.Event()
        self._kept = deque[tuple[bytes, bool]]()
        self._shaken: HostInfo | None = None
        self._listing: asyncio.Task[Mapping[str, Any] | None] | None = None
        self._listed: Listed | None = None
        # The lists whose changes the host is promised, and whether it was told that there is nothing in one of them.
        self._promised: set[str] = set()
        self._told_nothing = False

    async def serve(self, load: Load) -> None:
        """Serve until the host ends its input. Raises what `load` raises."""
        starting = asyncio.create_task(self._link.start_daemon(), name="daemon")
        holding = asyncio.create_task(self._hold(load, starting), name="SDK")
        try:
            async with self._conversation:
                reading = asyncio.create_task(self._read(), name="read")
                try:
                    await asyncio.wait({reading, holding}, return_when=asyncio.FIRST_COMPLETED)
                    (reading if reading.done() else holding).result()
                finally:
                    await _cancelled(reading)
        finally:
            self._over.set()
            if not self._kernel.done():
                holding.cancel()
            await asyncio.wait({holding})  # its session ends when the requests have
            await _cancelled(starting)
            await self._link.close()
        if not holding.cancelled():
            holding.result()

    async def _hold(self, load: Load, starting: asyncio.Task[None]) -> None:
        """Have the SDK when it is wanted, until the end."""
        await self._wanted.wait()
        make = await asyncio.to_thread(load)
        await asyncio.wait({starting})  # else the first request would start another daemon
        if self._listing is not None and not self._listing.done():
            await _cancelled(self._listing)  # the SDK's part lists them
        root = self._listed.root if self._listed is not None else None
        async with make(self._surroundings, self._link, self._conversation, root) as kernel:
            if self._told_nothing:
                kernel.told_nothing()
            await self._give(kernel)
            if self._listed is not None:
                await asyncio.sleep(
                    0
                )  # a subscription begins, and is notified of what has changed since the list
                await kernel.resume(self._listed.request, self._listed.tools)
                await self._give(kernel)
            self._kernel.set_result(kernel)
            self._pipes.offer(self._take_call)
            await self._over.wait()

    async def _give(self, kernel: SdkKernel) -> None:
        """Give it what was kept."""
        while self._kept:
            line, acknowledged = self._kept.popleft()
            await kernel.take(line, acknowledged=acknowledged)

    async def _ready(self) -> SdkKernel:
        self._wanted.set()
        return self._kernel.result() if self._kernel.done() else await asyncio.shield(self._kernel)

    # What is read

    async def _read(self) -> None:
        count = 0
        while True:
            try:
                line = await self._next()
            except LineTooLong as error:
                refusal = {"code": wire.PARSE_ERROR, "message": str(error)}
                await self._conversation.write(wire.failure(None, refusal))
                continue
            if not line:
                return
            if not line.isspace():
                await self._take(line)
            count += 1
            if count % TURN_LINES_MAX == 0:
                await asyncio.sleep(0)

    async def _next(self) -> bytes:
        # While the tools are being listed, the processors are left to the daemon.
        if not self._wanted.is_set() and self._listing is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENCE_SECONDS):
                    return await self._pipes.read()
            self._wanted.set()
        return await self._pipes.read()

    async def _take(self, line: bytes) -> None:
        """Answer a message, or have the SDK answer it."""
        match read(line):
            case Response(number, value):
                self._conversation.resolve(number, value)
            case FailedRequest(number, error):
                self._conversation.resolve(number, PeerError(error))
            case Cancelled(request_id):
                if not self._conversation.cancel(request_id) and self._kept:
                    await self._pass_on(line)  # it may be one of these
            case JsonRpcRequest() as request if self._is_ours(request):
                await self._answer(request, line)
            case _:
                await self._pass_on(line)

    def _take_call(self, line: bytes) -> bool:
        """Begin a call of a tool; return False for any other line. Most lines are calls, and need no task that reads them."""
        if CALL not in line:
            return False
        request = read(line)
        if (
            not isinstance(request, JsonRpcRequest)
            or request.method != "tools/call"
            or not self._is_ours(request)
        ):
            return False
        if request.host is not None:
            self._conversation.settle(Settled.ENVELOPED)
        self._begin_call(request)
        return True

    def _begin_call(self, request: JsonRpcRequest) -> None:
        exchange = Exchange(self._conversation, request.id, request.token)
        self._kernel.result().call(exchange, request)

    def _is_ours(self, request: JsonRpcRequest) -> bool:
        era = self._conversation.era
        if era is Era.OPEN and self._kept:
            return False  # what is kept may settle it
        return request.method in HOT[era] and (request.host is None) is (era is Era.SHAKEN)

    async def _pass_on(self, line: bytes) -> None:
        self._wanted.set()
        await self._keep(line, acknowledged=False)

    async def _keep(self, line: bytes, *, acknowledged: bool) -> None:
        """Give a line to the SDK's part, once it is there."""
        if not self._kernel.done() and len(self._kept) < KEPT_MAX:
            self._kept.append((line, acknowledged))
        else:
            await (await self._ready()).take(line, acknowledged=acknowledged)

    # What is answered

    async def _answer(self, request: JsonRpcRequest, line: bytes) -> None:
        host, conversation = request.host, self._conversation
        if host is not None and request.method not in ("initialize", "server/discover"):
            conversation.settle(Settled.ENVELOPED)  # a discovery chooses no protocol
        match request.method:
            case "initialize" if host is not None:
                self._shaken = host
                conversation.shake(request.params)
                instructions = self._surroundings.instructions(host.capabilities)
                await self._say(request, wire.initialization(request.version, instructions))
            case "server/discover" if host is not None:
                await self._say(request, wire.discovery(self._surroundings.instructions(host.capabilities)))
            case "resources/list" | "prompts/list" as method:
                if method in self._promised and not self._kernel.done():
                    self._told_nothing = True
                    await self._say(request, wire.cacheable({method.partition("/")[0]: []}))
                else:  # hosts ask for all lists at once, and their first turn waits for the tools
                    await self._keep(line, acknowledged=False)
            case "subscriptions/listen" if not self._kernel.done():
                wanted = request.params["notifications"]
                self._promised |= {method for method, change in wire.CHANGES.items() if wanted.get(change)}
                await conversation.write(wire.acknowledgement(request.id, wanted))
                await self._keep(line, acknowledged=True)
            case "tools/list":
                self._begin(request, self._list)
            case "tools/call" if self._kernel.done():
                self._begin_call(request)
            case "tools/call":
                self._begin(request, self._call)
            case "ping":
                self._begin(request, self._pong)
            case "notifications/initialized":
                pass  # the handshake is complete without it
            case _:
                await self._pass_on(line)

    async def _say(self, request: JsonRpcRequest, value: Mapping[str, Any]) -> None:
        await self._conversation.write(wire.result(request.id, value))

    def _begin(
        self,
        request: JsonRpcRequest,
        work: Callable[[Exchange, JsonRpcRequest], Awaitable[Mapping[str, Any]]],
    ) -> None:
        exchange = Exchange(self._conversation, request.id, request.token)
        self._conversation.begin(exchange, lambda exchange: work(exchange, request))

    async def _pong(self, _exchange: Exchange, _request: JsonRpcRequest) -> Mapping[str, Any]:
        return {}

    async def _call(self, exchange: Exchange, request: JsonRpcRequest) -> Mapping[str, Any]:
        return await (await self._ready()).call_tool(exchange, request)

    async def _list(self, exchange: Exchange, request: JsonRpcRequest) -> Mapping[str, Any]:
        """List the tools; where there is no daemon, the SDK's part says so."""
        if not self._kernel.done() and self._listing is None:
            self._listing = asyncio.create_task(self._list_ahead(request), name="list")
            try:
                await asyncio.wait({self._listing})
            finally:
                await _cancelled(self._listing)
                self._wanted.set()
            if not self._listing.cancelled() and (value := self._listing.result()) is not None:
                return value
        return await (await self._ready()).list_tools(exchange, request)

    async def _list_ahead(self, request: JsonRpcRequest) -> Mapping[str, Any] | None:
        """List the tools from a session that will be the host's; None where there is no daemon."""
        host = request.host or self._shaken
        if host is None:
            return None
        root = await self._root(host)
        directory = self._surroundings.directory or root or self._surroundings.here
        try:
            session = await self._link.open_ahead(
                LinkCaller(host.agent, directory, elicits(host.capabilities))
            )
            catalog = await session.described(DESCRIBED_SECONDS_MAX)
        except Unavailable:
            return None
        self._listed = Listed(request, catalog.tools, root)
        value = {"tools": wire.tools_of(read_output.offered(catalog), host.agent)}
        return wire.cacheable(value) if request.host is not None else value

    async def _root(self, host: HostInfo) -> str | None:
        """Ask a host that has shaken hands for its roots; since 2026-07-28 it cannot be asked before a call."""
        if (
            self._surroundings.directory is not None
            or self._conversation.era is not Era.SHAKEN
            or "roots" not in host.capabilities
        ):
            return None
        try:
            answer = await self._conversation.request("roots/list", seconds=ROOTS_SECONDS)
        except PeerError:
            return None
        return root_directory(roots_of(answer))


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel and wait."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


_LISTS_AND_CALLS: Final[frozenset[Method]] = frozenset(
    {"resources/list", "prompts/list", "tools/list", "tools/call"}
)
_MODERN: Final[frozenset[Method]] = frozenset((*_LISTS_AND_CALLS, "server/discover", "subscriptions/listen"))
HOT: Final[Mapping[Era, frozenset[Method]]] = {
    Era.OPEN: frozenset((*_MODERN, "initialize")),
    Era.HANDSHAKE: frozenset(),
    Era.SHAKEN: frozenset((*_LISTS_AND_CALLS, "notifications/initialized", "ping")),
    Era.MODERN: _MODERN,
}
"""What is answered here, by what is spoken."""
