"""A way to a TCP server that can be cut, stopped in one direction, or broken on one side alone.

It is a process of its own, which is told what to do by lines of its standard input, so that its connections are none of the
test's.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass


class FaultingProxy:
    """The way, which is whole at first."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes]

    def lead_to(self, port: int) -> None:
        """Carry connections that are made from now on to this port of loopback."""
        self._do(f"lead_to {port}")

    def hold(self, *directions: str) -> None:
        """Let nothing pass any more, "up" to the server or "down" from it; what comes meanwhile passes later."""
        self._do(f"hold {' '.join(directions)}")

    def cut(self) -> None:
        """Reset all connections, and each that is made."""
        self._do("cut")

    def half_open(self, *, near: bool) -> None:
        """Have one side reset, and the other one hear no more of it; connections that are made are taken, and hear nothing.

        Args:
            near: Whether it is the client's side that stays open.
        """
        self._do(f"half_open {'near' if near else 'far'}")

    def heal(self) -> None:
        """Let everything pass; a connection that is open on one side alone is reset there."""
        self._do("heal")

    def _do(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"done\n", line

    @contextmanager
    def running(self) -> Generator[int]:
        """Carry connections to `port` meanwhile; yields the id of the process."""
        words = [sys.executable, __file__]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as self._process:
            assert self._process.stdout is not None
            self.port = int(self._process.stdout.readline())
            try:
                yield self._process.pid
            finally:
                assert self._process.stdin is not None
                self._process.stdin.close()  # which ends it


@dataclass(eq=False)
class _Line:
    """A connection of a client, and that to the server."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    broken: bool = False

    def reset(self) -> None:
        self.near.transport.abort()
        self.far.transport.abort()


class _Way:
    """What the process does."""

    def __init__(self) -> None:
        self._target = 0
        self._lines: set[_Line] = set()
        self._refuses = False
        self._passes = {"up": asyncio.Event(), "down": asyncio.Event()}
        self.heal()

    def lead_to(self, port: str) -> None:
        self._target = int(port)

    def hold(self, *directions: str) -> None:
        for direction in directions:
            self._passes[direction].clear()

    def cut(self) -> None:
        self._refuses = True
        for line in self._lines:
            line.reset()

    def half_open(self, side: str) -> None:
        self.hold("up", "down")
        for line in self._lines:
            line.broken = True
            (line.far if side == "near" else line.near).transport.abort()

    def heal(self) -> None:
        self._refuses = False
        for line in self._lines:
            if line.broken:
                line.reset()
        for event in self._passes.values():
            event.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._refuses:
                return
            with suppress(OSError):  # nothing listens there
                there, far = await asyncio.open_connection("127.0.0.1", self._target)
                line = _Line(writer, far)
                self._lines.add(line)
                try:
                    up, down = self._carry(reader, far, "up", line), self._carry(there, writer, "down", line)
                    await asyncio.gather(up, down)
                finally:
                    self._lines.discard(line)
                    line.reset()
        finally:
            writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str, line: _Line
    ) -> None:
        """Hand on what comes. The end of one side is that of the other, unless the line is open on one side alone."""
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._passes[direction].wait()
                if line.broken:
                    return
                writer.write(data)
                await writer.drain()
        if not line.broken:
            writer.close()


async def _main() -> None:
    way = _Way()
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(told), sys.stdin.buffer
    )
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while words := (await told.readline()).decode().split():
        getattr(way, words[0])(*words[1:])
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
