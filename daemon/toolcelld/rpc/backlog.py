"""Carries connections that reached the socket which systemd passed to the server's own, which bears its name meanwhile.

They came before the server did, or looked the name up just before it was exchanged; each is carried both ways until it
ends. What a client shows and is allowed is in its requests, so nothing is lost on the way.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from toolcelld.network.relay import closing, relay
from toolcelld.runtime_directory import RuntimeDirectory

logger = logging.getLogger(__name__)

CARRIED_MAX: Final = 128
"""Connections at a time; each takes two descriptors. What is beyond is closed, and reaches the server when it connects again."""
ACCEPTS_AT_ONCE: Final = 16
"""Connections that are taken before the loop does other work."""
REST_SECONDS: Final = 1.0
"""Where a connection cannot be taken, as descriptors are used up; asyncio's own servers rest as long."""


@asynccontextmanager
async def carried(directory: RuntimeDirectory) -> AsyncGenerator[Callable[[], None]]:
    """Give the server's socket its name, and carry what waits on a passed one.

    Yields what gives the name back, which is called before the server stops: connections that come afterwards wait for
    the next daemon, and those that are carried go on until the end of the body.
    """
    if directory.passed is None:
        yield lambda: None
        return
    if not directory.show():
        logger.warning(
            "%s was removed while systemd listened on it: until its socket unit is restarted no connection starts a daemon",
            directory.socket,
        )
    backlog = _Backlog(directory.passed, directory.socket)

    def give_back() -> None:
        backlog.rest()
        directory.withdraw()

    try:
        yield give_back
    finally:
        give_back()
        await backlog.close()


class _Backlog:
    """Takes connections from a socket. Its tasks are its own and no group's: no client can end anything else by them."""

    def __init__(self, listener: socket.socket, server: str) -> None:
        self._listener = listener
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._carried: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._go_on()

    def rest(self) -> None:
        """Take no more connections."""
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()

    async def close(self) -> None:
        """Drop every connection."""
        for task in self._carried:
            task.cancel()
        await asyncio.gather(*self._carried, return_exceptions=True)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                self.rest()
                self._pause = self._loop.call_later(REST_SECONDS, self._go_on)
                return
            if len(self._carried) >= CARRIED_MAX:
                client.close()
                continue
            client.setblocking(False)
            task = self._loop.create_task(self._carry(client))
            self._carried.add(task)
            task.add_done_callback(partial(self._ended, client))  # also of one that never begins

    def _ended(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        client.close()
        self._carried.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A connection that had waited: %r", error)

    async def _carry(self, client: socket.socket) -> None:
        try:
            server = await asyncio.open_unix_connection(self._server)
            with closing(server):
                streams = await asyncio.open_unix_connection(sock=client.dup())
                with closing(streams):
                    await relay(streams, server)
        except* OSError:
            pass  # a side that closes the connection is no failure
