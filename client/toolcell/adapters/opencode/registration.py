"""The bridge `toolcell mcp` as an MCP server of a running OpenCode, for as long as a block lasts.

The command is fixed, there is no script of ours on the disk. The bridge is OpenCode's child and ends with it; what
could be left behind is a bridge in an OpenCode that goes on, so taking it back happens on every way out of the block,
and is waited for when the block is cancelled. Where our process is killed, its guard does it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from toolcell import _paths
from toolcell.client import connect

from .api import OpenCodeApi, OpenCodeError
from .cleanup import guarded

TIMEOUT_MS = 60_000  # of silence; the bridge gives a sign of life every 15 s

# OpenCode gives its whole environment to its children. These it has for itself: the key to its door, and a
# configuration that may hold keys to models. They cannot be left out, but be made empty.
WITHHELD = (
    "OPENCODE_SERVER_PASSWORD",
    "OPENCODE_SERVER_USERNAME",
    "OPENCODE_CONFIG_CONTENT",
    "OPENCODE_AUTH_CONTENT",
)


class Registration:
    """The bridge in one directory of one server."""

    def __init__(
        self, server: OpenCodeApi, name: str, socket: str, daemon: Literal["start", "running"]
    ) -> None:
        self._server = server
        self._socket = socket
        self._directory = "." if _paths.is_elsewhere(socket) else server.directory
        self._daemon: Literal["start", "running"] = daemon
        self._adding: asyncio.Task[None] | None = None  # awaited by the caller that adds, and before removal
        self._there = False
        self.name = name
        self.tools = 0
        """How many tools the directory had when this was last made sure of."""

    async def ensure(self) -> int:
        """Make sure that it is there, as before a session is created or resumed; the count of the tools.

        A changed tool needs no more: the bridge tells OpenCode. Raises OpenCodeError, Unavailable.
        """
        # Who asks the daemon first hears why there is none; a bridge could tell it to OpenCode's log only.
        async with connect(
            self._socket, agent="opencode", directory=self._directory, daemon=self._daemon, linger=0
        ) as session:
            self.tools = len((await session.described()).tools)
        if (await self._server.mcp()).get(self.name, {}).get("status") == "connected" and self._there:
            return self.tools
        self._there = True
        self._adding = asyncio.create_task(self._server.add_mcp(self.name, self._config()))
        await asyncio.shield(self._adding)
        return self.tools

    async def unregister(self) -> None:
        """Take it back, which aborts what it runs; harmless twice, and where the server has gone."""
        if self._adding is not None:
            await asyncio.wait({self._adding})  # else it would come after its removal
            if not self._adding.cancelled():
                self._adding.exception()  # raised in the task that waited for it
            self._adding = None
        if self._there:
            self._there = False
            with suppress(OpenCodeError):  # no server, no bridge
                await self._server.remove_mcp(self.name)

    def _config(self) -> dict[str, Any]:
        return {
            "type": "local",
            "command": [*_command(), "mcp", "-C", self._server.directory],
            "cwd": self._server.directory,
            "environment": {**dict.fromkeys(WITHHELD, ""), "TOOLCELL_SOCKET": self._socket},
            "enabled": True,
            "timeout": TIMEOUT_MS,
        }


@asynccontextmanager
async def register(
    url: str,
    *,
    directory: str | os.PathLike[str] = ".",
    name: str = "toolcell",
    password: str | None = None,
    username: str = "opencode",
    socket: str | None = None,
    daemon: Literal["start", "running"] = "start",
) -> AsyncGenerator[Registration]:
    """Show a directory's tools to a running `opencode serve`, as `NAME_tool`, until the block is left.

    Raises OpenCodeError where the server does not answer or does not want to, Unavailable where there is no daemon.
    """
    async with OpenCodeApi.at(url, directory=directory, password=password, username=username) as server:
        where = _paths.address_of(socket) if socket is not None else _paths.socket_path()
        registration = Registration(server, name, where, daemon)
        async with guarded(server.removal(name), username, password):
            try:
                await registration.ensure()
                yield registration
            finally:
                await _to_its_end(asyncio.create_task(registration.unregister()))


async def _to_its_end(task: asyncio.Task[None]) -> None:
    """Wait for a task whatever happens to us meanwhile; its requests have time-outs of their own."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _command() -> list[str]:
    """The command `toolcell` of this installation, wherever OpenCode's PATH leads."""
    beside = os.path.join(os.path.dirname(sys.executable), "toolcell")
    return [beside] if os.access(beside, os.X_OK) else [sys.executable, "-P", "-m", "toolcell.cli"]
