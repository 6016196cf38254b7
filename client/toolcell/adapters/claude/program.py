"""The `claude` program that talks to our server, and its end.

The SDK cancels a running tool when its client is closed, and not when the program dies. An application that goes on
after that error, or does not read messages at the moment, would leave the tool running for nothing.
The SDK names no process to a server, so it is looked for among the children of this one: the kernel tells of its end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

from toolcell.adapters.pinned import PinnedDefinitions

MARK = b"CLAUDE_AGENT_SDK_VERSION="
"""The SDK puts it into the environment of each program that it starts."""


@dataclass(frozen=True, slots=True)
class ProgramConnection:
    """A connection of a program with the server."""

    ended: asyncio.Future[None]
    """Done when the program has ended; never done where it was not found, as one of another user."""
    pinned: PinnedDefinitions = field(default_factory=PinnedDefinitions)


class ConnectedPrograms:
    """The programs of this process that have a server's connection."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    @asynccontextmanager
    async def connection(self, server: object) -> AsyncGenerator[ProgramConnection]:
        """Yield a new connection, for the time that it exists.

        Of programs that were started at the same time it is not known which one it is of: then all of them must have
        ended.
        """
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        candidates = set(_started()) - self._taken
        if len(candidates) == 1:
            self._taken |= candidates
        try:
            with ExitStack() as watches:
                alive = candidates.copy()
                for pid in candidates:
                    _watch(pid, alive, ended, watches)
                yield ProgramConnection(ended)
        finally:
            if len(candidates) == 1:
                self._taken -= candidates
            ended.cancel()


def _watch(pid: int, alive: set[int], ended: asyncio.Future[None], watches: ExitStack) -> None:
    """Have the future done when this was the last of the processes to end."""
    loop = asyncio.get_running_loop()
    descriptor = -1

    def gone() -> None:
        if descriptor >= 0:
            loop.remove_reader(descriptor)
        alive.discard(pid)
        if not alive and not ended.done():
            ended.set_result(None)

    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # it was reaped just now; its descriptor would be readable
        loop.call_soon(gone)
        return
    watches.callback(os.close, descriptor)
    loop.add_reader(descriptor, gone)
    watches.callback(loop.remove_reader, descriptor)


def _started() -> Iterator[int]:
    """The programs that the SDK has started in this process and that run."""
    with suppress(OSError):  # no such lists in this kernel
        for thread in os.listdir("/proc/self/task"):
            for child in _read(f"/proc/self/task/{thread}/children").split():
                if any(line.startswith(MARK) for line in _read(f"/proc/{int(child)}/environ").split(b"\0")):
                    yield int(child)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # it has ended, or is another user's
        return b""
