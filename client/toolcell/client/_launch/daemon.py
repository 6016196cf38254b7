"""The daemon that a session talks to: found, started, or kept for oneself.

Starting is a race of three: the socket answers, the child ends, the time is up. Each has its own message, with the
last lines that the child wrote. A child that ends with 0 has lost another race, the one for the daemon's lock; then
the winner's socket is about to answer.

A shared daemon leaves the process tree of the client (`--detach`), because agents end an MCP server together with its
descendants; the child that is started waits for the start, and exits as it ends. A private daemon stays a child of the
client: it reads a pipe from it, and ends when the pipe closes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from toolcell import _paths
from toolcell._platform import unsupported
from toolcell.client._grpc.access import START_IT
from toolcell.client._grpc.channel import Channel, dial
from toolcell.client.errors import Refusal, Unavailable

from . import service
from .process import DaemonProcess

START_SECONDS = 20.0  # a cold disk and a busy machine; a warm start takes half a second
ANSWER_EVERY_SECONDS = 0.02  # a socket has no event for "is listening now"
IDLE_EXIT_SECONDS = 600
SOCKET_PATH_BYTES_MAX = 107  # sockaddr_un on Linux


class Daemon(Protocol):
    """A daemon, as far as a session cares; by default one that is there, has no other in its place, and is not ours."""

    linger_seconds: float
    """For which calls go on after a lost connection, where a session says nothing."""
    socket: str
    """Where it listens."""

    def place(self, directory: str | os.PathLike[str]) -> str:
        """A directory of a session, as the daemon is told of it."""
        ...

    async def ready(self) -> None:
        """Return when it may be dialled; starts it where that is ours to do. Raises Unavailable."""
        return

    def dial(self) -> AbstractAsyncContextManager[Channel]:
        """A channel to it, with what agents show. Raises Unavailable."""
        ...

    def lost(self, why: Refusal) -> bool:
        """Take note that it is lost, or refuses the session; returns whether another one may be dialled in its place."""
        return False

    def welcomed(self) -> None:
        """Take note that it has opened the session."""
        return

    async def end(self) -> None:
        """End it, if it is ours."""
        return


def find(address: str | None, daemon: Literal["start", "running", "private"]) -> Daemon:
    """The daemon at an address, `None` for the user's own. Raises Unavailable where none can be started."""
    socket = _paths.address_of(address) if address else _paths.socket_path()
    if _paths.is_elsewhere(socket) and daemon != "private":
        if _paths.is_cluster(socket):
            from .placed import Placed

            return Placed.joined(socket)
        from .remote import Remote  # loads what TLS takes

        return Remote.joined(socket)
    if daemon != "running" and (reason := unsupported(sys.platform)) is not None:
        raise Unavailable(reason)
    if daemon == "private":
        if address is not None:
            raise ValueError("a private daemon has an address of its own; leave `address` out")
        return Private()
    return Shared(socket) if daemon == "start" else Running(socket)


class Running(Daemon):
    """A daemon on a socket, with its token beside it, that another process started."""

    linger_seconds = 10.0

    def __init__(self, socket: str) -> None:
        self.socket = socket

    def place(self, directory: str | os.PathLike[str]) -> str:
        """A directory, absolute, as the daemon works elsewhere."""
        return os.path.abspath(directory)

    def dial(self) -> AbstractAsyncContextManager[Channel]:
        """A channel to it, with the token of agents. Raises Unavailable."""
        return dial(self.socket, _paths.agent_token_path(self.socket))


class Shared(Running):
    """The user's daemon, started by the first client: it serves other clients too, and exits when it is idle."""

    async def ready(self) -> None:
        """Start it unless it answers: as the user's service where one is installed, else detached."""
        if _paths.answers(self.socket):
            return
        if await self._is_served():
            await _until_answers(self.socket, None)
            return
        log_path = os.path.join(_paths.state_directory(), "daemon.log")
        command = [*_command(self.socket), "--idle-exit", str(IDLE_EXIT_SECONDS), "--detach"]
        child = DaemonProcess(command, log_path, life_line=False)
        await _until_answers(self.socket, child)

    async def _is_served(self) -> bool:
        """Whether a service has been started, or is about to answer. Raises Unavailable."""
        # Units serve the user's runtime directory, so a socket that was moved is not a unit's.
        runtime = f"/run/user/{os.getuid()}"
        if self.socket != f"{runtime}/toolcell/daemon.sock":
            return False
        has_manager = os.path.exists(f"{runtime}/systemd/private")  # noqa: ASYNC240  # in memory
        return (has_manager and await service.start()) or await service.run_by_root()


class Private(Running):
    """A private daemon on a socket of its own, which ends with this process."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._directory = ""
        self.child: DaemonProcess | None = None

    @property
    def socket(self) -> str:  # type: ignore[override]  # it is known when it starts
        """Where it listens, below a temporary directory."""
        return os.path.join(self._directory, "daemon.sock")

    async def ready(self) -> None:
        """Start it, also when it has died."""
        if self.child is not None and not self.child.ended.is_set():
            return
        if not self._directory:
            try:
                self._directory = tempfile.mkdtemp(prefix="toolcell-")
            except OSError as error:
                raise Unavailable(
                    f"The daemon cannot be started: there is no temporary directory: {error.strerror}.",
                    "Name another with TMPDIR.",
                ) from error
        log_path = os.path.join(self._directory, "daemon.log")
        if self.child is not None:
            self.child.close()
        self.child = DaemonProcess(
            [*_command(self.socket), "--private", *self._options], log_path, life_line=True
        )
        await _until_answers(self.socket, self.child)

    async def end(self) -> None:
        """Let go of the life line and wait until it has ended; then nothing of it is left."""
        if self.child is not None:
            await self.child.end()
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)


def _command(socket: str) -> list[str]:
    if len(os.fsencode(socket)) > SOCKET_PATH_BYTES_MAX:
        raise Unavailable(
            f"The path of the socket is too long for Linux ({SOCKET_PATH_BYTES_MAX} bytes): {socket}",
            "Choose a shorter one with TOOLCELL_SOCKET or TMPDIR.",
        )
    return [sys.executable, "-P", "-m", "toolcelld", "--socket", socket]


async def _until_answers(socket: str, child: DaemonProcess | None) -> None:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while not _paths.answers(socket):
        if child is not None and child.ended.is_set() and child.code != 0:
            raise Unavailable(f"The daemon did not start: exit {child.code}.\n{child.last_lines()}")
        if asyncio.get_running_loop().time() > deadline:
            written = f"\n{child.last_lines()}" if child is not None else ""
            raise Unavailable(
                f"The daemon did not answer on {socket} within {START_SECONDS:g} s.{written}", START_IT
            )
        await asyncio.sleep(ANSWER_EVERY_SECONDS)
