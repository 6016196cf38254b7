"""What adopted MCP servers cost beside hosts that start them themselves: a warm call, and the memory of ten sessions.

The servers are those of docs/public-servers.md that call without a browser or a service, from the registries that the
environment names.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from mcp import Client, MCPError, StdioServerParameters
from tests.bench.contenders import TOOLS, Call
from tests.conftest import descendants
from tests.daemons import RunningDaemon, running_daemon
from tests.public.servers import (
    SERVERS,
    PublicServer,
    command_of,
    environment,
    forget,
    installed,
    lay_out,
    placed,
    pss_bytes,
    quiet,
    spoken_to,
)

from toolcell._servers.connection import RpcError, ServerConnection
from toolcell._servers.listing import lists_of
from toolcell._servers.load import name_of
from toolcell.client import Session

__all__ = ["Adopted", "adopted_servers"]

WITHOUT: Final = ("chrome", "playwright", "charts")
ROUND_CALLS: Final = 10
"""Calls of one way that follow each other."""


class Adopted:
    """Servers that a daemon has installed, each of which is called by the first of its calls.

    Args:
        daemon: The daemon.
        servers: The servers.
    """

    def __init__(self, daemon: RunningDaemon, servers: Sequence[PublicServer]) -> None:
        self._daemon = daemon
        self.servers = servers

    async def seconds(
        self, session: Session, server: PublicServer, rounds: int
    ) -> tuple[float, float, float]:
        """Return the median seconds of a call through the daemon, of one of a Python tool, and of one without the daemon."""
        tool, given = self._call(server)
        async with spoken_to(server, self._daemon) as client:

            async def through(_: int) -> object:
                return await session.call(name_of(server.name, tool), given)

            async def python(n: int) -> object:
                return await session.call("add", {"a": n, "b": 1})

            async def directly(_: int) -> None:
                with contextlib.suppress(MCPError):  # the answer of some, that costs what another one does
                    await client.call_tool(tool, given)

            calls: tuple[Call, ...] = (through, python, directly)
            taken: tuple[list[float], ...] = ([], [], [])
            for number in range(rounds + 1):
                for call, seconds in zip(calls, taken, strict=True):
                    for n in range(ROUND_CALLS):
                        began = time.perf_counter()
                        await call(n)
                        if number:  # the first round is for what is made once
                            seconds.append(time.perf_counter() - began)
        ours, tools, theirs = map(statistics.median, taken)
        return ours, tools, theirs

    async def bytes_through_bridges(self, sessions: int) -> int:
        """Return the memory of the daemon, its cells and the bridges of so many hosts, each of which has called each server."""
        before = set(descendants(os.getpid()))
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "toolcell.cli", "mcp", "--socket", self._daemon.socket],
            env={"PATH": os.environ["PATH"], "HOME": str(self._daemon.directory)},
            cwd=self._daemon.project,
        )
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(sessions):
                client = await stack.enter_async_context(Client(parameters, mode="legacy"))
                await client.list_tools()
                for server in self.servers:
                    tool, given = self._call(server)
                    await client.call_tool(name_of(server.name, tool), given)
            ours = {self._daemon.pid, *descendants(self._daemon.pid)}
            return _bytes_of({*ours, *descendants(os.getpid())} - (before - ours))

    def bytes_of_hosts(self, sessions: int) -> int:
        """Return the memory of the servers that so many hosts start, each of which has called each server."""
        before = set(descendants(os.getpid()))
        with contextlib.ExitStack() as stack:
            for _ in range(sessions):
                for server in self.servers:
                    command = quiet(command_of(server, self._daemon), self._daemon)
                    connection = ServerConnection(command, str(self._daemon.project), _Silent())
                    stack.callback(connection.kill)
                    connection.start()
                    lists_of(connection)
                    tool, given = self._call(server)
                    with contextlib.suppress(RpcError):
                        connection.request("tools/call", {"name": tool, "arguments": given})
            return _bytes_of(set(descendants(os.getpid())) - before)

    def _call(self, server: PublicServer) -> tuple[str, dict[str, Any]]:
        call = server.calls[0]
        return call["tool"], placed(call["arguments"], self._daemon.project)


class _Silent:
    """A host that offers nothing and hears nothing."""

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Ignore it."""

    def on_request(self, number: object, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Refuse it."""
        raise RpcError(0, f"{method} is not offered")


@contextlib.asynccontextmanager
async def adopted_servers(
    count: int | None = None,
) -> AsyncGenerator[tuple[RunningDaemon, Adopted]]:
    """Within: a daemon with a Python tool and so many of the servers, installed and described; by default all."""
    servers = [server for server in SERVERS if server.name not in WITHOUT][:count]
    with running_daemon(environment=environment()) as daemon:
        try:
            lay_out(daemon.project, servers)
            daemon.tool("add", TOOLS.format(options="", name="add"))
            await installed(daemon, servers)
            await asyncio.to_thread(daemon.until_described, {server.name for server in servers})
            yield daemon, Adopted(daemon, servers)
        finally:
            if daemon.process is not None:
                daemon.stop()
            forget(daemon)


def _bytes_of(pids: set[int]) -> int:
    return sum(map(pss_bytes, pids))
