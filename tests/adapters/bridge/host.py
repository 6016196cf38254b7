"""A host of `toolcell bridge`: the real process, as a test drives it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.daemons import RunningDaemon

__all__ = ["COMMAND", "SECONDS_MAX", "Host", "bridge", "environment"]

COMMAND = [sys.executable, "-P", "-m", "toolcell.cli", "bridge"]
SECONDS_MAX = 60
"""For whatever is awaited, which takes a second at most; other tests may have the processors."""
UNREAD_BYTES_MAX = 512 * 1024  # longer than every line; asyncio reads twice as much ahead


def environment(daemon: RunningDaemon) -> dict[str, str]:
    """All that the bridge finds in its environment."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(daemon.directory),
        "LC_ALL": "C.UTF-8",
        "TOOLCELL_SOCKET": daemon.socket,
    }


class Host:
    """What it has said, and what it is told."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._news = asyncio.Condition()
        self._reads = asyncio.Event()
        self._reads.set()

    def pause(self) -> None:
        """Read nothing more than what the stream takes by itself, which is a few lines."""
        self._reads.clear()

    def resume(self) -> None:
        """Read on."""
        self._reads.set()

    async def read(self) -> None:
        """Keep what the bridge says, until it has ended."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            await self._reads.wait()
            if not line.endswith(b"\n"):
                return  # a bridge that has waited for long enough
            assert line.isascii()
            async with self._news:
                self.said.append(json.loads(line))
                self._news.notify_all()

    def write(self, line: bytes) -> None:
        """Say a line as it is."""
        assert self.process.stdin is not None
        self.process.stdin.write(line)

    def say(self, kind: str, **fields: Any) -> None:
        """Say a message; of the session "s" unless it names another."""
        self.write(json.dumps({"type": kind, "session": "s", **fields}).encode() + b"\n")

    async def hears(self, wanted: Callable[[dict[str, Any]], bool], count: int = 1) -> dict[str, Any]:
        """Wait for the first message of a kind, be it said already, or for as many of them; return the last."""
        async with asyncio.timeout(SECONDS_MAX), self._news:
            await self._news.wait_for(lambda: sum(map(wanted, self.said)) >= count)
            return list(filter(wanted, self.said))[count - 1]

    async def opened(self, session: str = "s", **fields: Any) -> dict[str, Any]:
        """Open a session."""
        self.say("open", session=session, **fields)
        return await self.hears(lambda one: one["type"] == "opened" and one["session"] == session)

    async def ended(self, call: str) -> dict[str, Any]:
        """Wait for the end of a call."""
        return await self.hears(lambda one: one["type"] == "ended" and one["id"] == call)

    async def call(self, tool: str, call: str = "1", **fields: Any) -> dict[str, Any]:
        """Call a tool, and wait for the end."""
        self.say("call", id=call, tool=tool, **fields)
        return await self.ended(call)

    async def event(self, name: str) -> dict[str, Any]:
        """Wait for an event."""
        return await self.hears(lambda one: one.get("event") == name)

    async def error(self, count: int = 1) -> dict[str, Any]:
        """Wait for an error."""
        return await self.hears(lambda one: one["type"] == "error", count)

    async def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""
        async with asyncio.timeout(SECONDS_MAX):
            return await self.process.wait()

    async def leave(self) -> int:
        """End its input, and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.wait()


@asynccontextmanager
async def bridge(daemon: RunningDaemon, *, killed: bool = False) -> AsyncGenerator[Host]:
    """A bridge in the project of a daemon; ends with 0 when the block is left, and has nothing to say to stderr.

    With `killed` the block kills it.
    """
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        cwd=daemon.project,
        env=environment(daemon),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=UNREAD_BYTES_MAX,
    )
    assert process.stderr is not None
    host = Host(process)
    reading = asyncio.create_task(host.read())
    errors = asyncio.create_task(process.stderr.read())
    try:
        yield host
        assert await host.leave() == (-signal.SIGKILL if killed else 0)
        async with asyncio.timeout(SECONDS_MAX):
            assert await errors == b""
            await reading
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        reading.cancel()
        errors.cancel()
        await asyncio.wait({reading, errors})
