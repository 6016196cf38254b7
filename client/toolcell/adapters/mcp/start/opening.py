"""The first messages of a host are answered without the SDK: what we are, and which tools there are.

Hosts wait for these, some for one second only, and the SDK takes longer to import than all the rest of a start. So it is
imported when the tools have been listed, or before that where it is needed or the host is silent. Messages that only the
SDK can answer are kept for it, in their order.

Many hosts begin their first turn with the first list, so it waits for the files that are still being described.

The SDK then reads the conversation from its beginning, so that it knows what was said; what it answers to requests that
have their answer is dropped (`messages`). The session that the tools were listed from becomes that of the host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from toolcell.adapters import read_output
from toolcell.adapters.mcp.host_context import HostContext, elicits, root_directory
from toolcell.adapters.mcp.host_limits import DESCRIBED_SECONDS_MAX
from toolcell.client import ToolInfo, Unavailable

from . import wire
from .host_link import Caller, HostLink
from .pipes import LineTooLong, Pipes
from .requests import Host, Request, read, read_roots

__all__ = ["ROOTS_SECONDS", "Answered", "Opening"]

SILENCE_SECONDS: Final = 0.2
"""Of a host that has not asked for the tools; then the import begins, as there is time for it."""
ROOTS_SECONDS: Final = 2.0
"""For a host that says it has roots and does not answer."""
KEPT_MAX: Final = 16
"""Messages that are kept for the SDK; more of them stay in the pipe."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a host was told, and has told."""

    tools: Mapping[str, ToolInfo]
    root: str | None
    """Its first root that is a directory here; None if it was not asked, or has none."""


class Opening:
    """An asynchronous context manager; leaving it ends what it has started and has not been taken over."""

    def __init__(self, surroundings: HostContext, link: HostLink) -> None:
        self.lines: list[bytes] = []
        """What the SDK is to read, in its order."""
        self.answered: set[wire.RequestId] = set()
        """The requests in these lines that have their answer."""
        self.listed: Answered | None = None
        """The tools, if the host was told of them."""
        self._surroundings = surroundings
        self._link = link
        self._shaken: Host | None = None  # who has shaken hands
        self._listing: asyncio.Task[None] | None = None
        self._roots: asyncio.Future[list[str]] | None = None  # while the host is asked for them
        self._sdk_wanted = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._starting = asyncio.create_task(self._link.start_daemon(), name="daemon")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await _cancelled(self._starting)
        await self._link.close()

    async def answer(self, pipes: Pipes, import_sdk: Callable[[], object]) -> bool:
        """Answer until the SDK is imported; return False if the host has ended its input before.

        Raises what the import raises, which runs in a thread.
        """
        conversation = asyncio.create_task(self._converse(pipes), name="opening")
        importing = asyncio.create_task(self._import(import_sdk), name="import")
        try:
            await asyncio.wait({conversation, importing}, return_when=asyncio.FIRST_COMPLETED)
            if conversation.done() and not conversation.result():
                return False
            await importing
            await asyncio.wait({self._starting})  # else the first request would start another
            return True
        finally:
            await _cancelled(conversation, importing, *([self._listing] if self._listing else []))

    async def _import(self, import_sdk: Callable[[], object]) -> None:
        await self._sdk_wanted.wait()
        await asyncio.to_thread(import_sdk)

    async def _converse(self, pipes: Pipes) -> bool:
        """Read and answer; False at the end of the input."""
        while len(self.lines) < KEPT_MAX:
            try:
                line = await self._next(pipes)
                if not line:
                    return False
                await self._take(line, pipes)
            except LineTooLong as error:
                with suppress(OSError):
                    await pipes.write(wire.error(wire.PARSE_ERROR, str(error)))
            except OSError:
                return False  # the host does not listen any more
        self._sdk_wanted.set()
        return True

    async def _next(self, pipes: Pipes) -> bytes:
        # While the tools are being listed, the processors are left to the daemon.
        if not self._sdk_wanted.is_set() and self._listing is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENCE_SECONDS):
                    return await pipes.read()
            self._sdk_wanted.set()
        return await pipes.read()

    async def _take(self, line: bytes, pipes: Pipes) -> None:
        """Answer a message, or keep it, or both."""
        asked = self._roots
        # It may have been given up in this turn of the loop, before the task that asked knows.
        if asked is not None and not asked.cancelled() and (roots := read_roots(line)) is not None:
            asked.set_result(roots)
            self._roots = None
            return
        request = read(line)
        host = None if request is None else request.host or self._shaken
        if request is None or host is None or (request.host is not None and self._shaken is not None):
            self.lines.append(line)
            self._sdk_wanted.set()
            return
        match request.method:
            case "initialize":
                self._shaken = host
                self.lines.append(line)
                self.answered.add(request.id)
                value = wire.initialization(
                    request.version, self._surroundings.instructions(host.capabilities)
                )
                await pipes.write(wire.result(request.id, value))
            case "notifications/initialized":
                self.lines.append(line)
            case "server/discover":  # changes nothing, so that the SDK need not hear of it
                value = wire.discovery(self._surroundings.instructions(host.capabilities))
                await pipes.write(wire.result(request.id, value))
            case "resources/list":  # neither does this; there are none before the first call
                await pipes.write(wire.result(request.id, wire.modern({"resources": []})))
            case "subscriptions/listen":
                self.lines.append(line)
                self.answered.add(request.id)
                await pipes.write(wire.acknowledgement(request.id, request.changes))
            case "tools/list":
                self.lines.append(line)
                if self._listing is None:
                    self._listing = asyncio.create_task(self._list(request, host, pipes), name="list")
                else:
                    self._sdk_wanted.set()

    async def _list(self, request: Request, host: Host, pipes: Pipes) -> None:
        """List the tools; where there is no daemon, the SDK's part says so."""
        try:
            await asyncio.wait({self._starting})
            root = await self._root(host, pipes)
            directory = self._surroundings.directory or root or self._surroundings.here
            session = await self._link.open_ahead(Caller(host.agent, directory, elicits(host.capabilities)))
            catalog = await session.described(DESCRIBED_SECONDS_MAX)
            value: dict[str, Any] = {"tools": wire.tools_of(read_output.offered(catalog), host.agent)}
            self.listed = Answered(catalog.tools, root)
            self.answered.add(request.id)
            await pipes.write(wire.result(request.id, wire.modern(value) if request.version else value))
        except (Unavailable, OSError):
            pass
        finally:
            self._sdk_wanted.set()

    async def _root(self, host: Host, pipes: Pipes) -> str | None:
        """Ask a host that has shaken hands for its roots; since 2026-07-28 it cannot be asked before a call."""
        if (
            self._surroundings.directory is not None
            or self._shaken is None
            or "roots" not in host.capabilities
        ):
            return None
        asked = self._roots = asyncio.get_running_loop().create_future()
        await pipes.write(wire.roots_request())
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOTS_SECONDS):
                return root_directory(await asked)
        self._roots = None
        return None


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel and wait."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
