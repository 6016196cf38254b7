"""The SDK's own server over lines, as `toolcell mcp` would be if the SDK owned the connection, and a host that follows a script.

`sdk_serves` has the same handlers as `StdioServer`, so whatever the two say differently is the loop's doing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from toolcell.adapters.mcp import HostContext, HostLink
from toolcell.adapters.mcp.bridge import CHANGES, host_server
from toolcell.adapters.mcp.host.session import HostSession
from toolcell.adapters.mcp.kernel import refusal_of
from toolcell.adapters.pipes import LineTooLong, Pipes

__all__ = ["Script", "encoded", "run_sdk", "sdk_serves"]


def encoded(*messages: object) -> list[bytes]:
    """Messages as lines."""
    return [json.dumps(each).encode() + b"\n" for each in messages]


class Script(Pipes):
    """A host that says these lines, and then nothing until it leaves."""

    def __init__(self, *lines: bytes) -> None:
        self.said: list[dict[str, Any]] = []
        self.heard = asyncio.Event()
        self._lines = asyncio.Queue[bytes | Exception]()
        self._on_line: Callable[[bytes], bool] | None = None
        self._waits = False
        for line in lines:
            self._lines.put_nowait(line)

    def add(self, *said: object) -> None:
        """Say more: messages, lines as they are, or what reading them raises."""
        for each in said:
            line = each if isinstance(each, bytes | Exception) else encoded(each)[0]
            on_line = self._on_line if self._waits and self._lines.empty() else None
            if on_line is None or isinstance(line, Exception) or not on_line(line):
                self._lines.put_nowait(line)

    def offer(self, on_line: Callable[[bytes], bool]) -> None:
        self._on_line = on_line

    async def read(self) -> bytes:
        self._waits = True
        try:
            line = await self._lines.get()
        finally:
            self._waits = False
        if isinstance(line, Exception):
            raise line
        return line

    async def write(self, line: bytes) -> None:
        self.put(line)

    def put(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.said.append(json.loads(line))
        self.heard.set()

    def end(self) -> None:
        self._lines.put_nowait(b"")

    async def until(self, count: int) -> None:
        """Wait until so much was said."""
        while len(self.said) < count:
            self.heard.clear()
            await self.heard.wait()

    async def answers(self, *ids: object) -> list[dict[str, Any]]:
        """Wait until these requests have an answer, and return the answers."""
        found: dict[object, dict[str, Any]] = {}
        while not found.keys() >= {*ids}:
            self.heard.clear()
            found = {each["id"]: each for each in self.said if "id" in each and "method" not in each}
            if not found.keys() >= {*ids}:
                await self.heard.wait()
        return [found[each] for each in ids]


class _Lines:
    """A script as the two streams of the SDK."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._script.write(text.encode() + b"\n")

    async def receive(self) -> SessionMessage | Exception:
        while line := await self._next():
            if line.isspace():
                continue
            try:
                return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValidationError as error:
                await self._refuse(refusal_of(error))
        raise anyio.EndOfStream

    async def _next(self) -> bytes:
        try:
            return await self._script.read()
        except LineTooLong as error:
            await self._refuse({"code": types.PARSE_ERROR, "message": str(error)})
            return b"\n"

    async def _refuse(self, error: dict[str, Any]) -> None:
        await self._script.write(*encoded({"jsonrpc": "2.0", "id": None, "error": error}))

    async def aclose(self) -> None:
        """The script is ended by its test."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None: ...


async def run_sdk(serving: Server[Any], script: Script) -> None:
    """Serve a script until it ends."""
    options = serving.create_initialization_options(CHANGES)
    await serving.run(_Lines(script), _Lines(script), options)


@asynccontextmanager
async def sdk_serves(surroundings: HostContext, link: HostLink, script: Script) -> AsyncGenerator[None]:
    """Within: the SDK's server serves a script."""
    async with HostSession(surroundings, link) as stay, asyncio.TaskGroup() as group:
        group.create_task(run_sdk(host_server(stay), script))
        yield
        script.end()
