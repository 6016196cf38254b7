"""The network of one cell that may reach some hosts: the sockets that it handed over, served by the daemon.

A strict cell has a network of its own with nothing in it but a loopback. Before it runs code of the user it opens three
kinds of sockets there and hands them to the daemon, so that what is sent inside of the cell is received outside of it:

    UDP, port 53             questions for names                    `names`
    0.0.0.0, a granted port  connections to the addresses of names  connected to the host with that name
    127.0.0.1, any port      the proxy, for literal addresses       `proxy`

So there is no bridge, no route and no name server in the cell, and nothing to configure on the host. Clients connect to a
name and a port as they do anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from toolcelld.config.hosts import is_granted
from toolcelld.network import proxy
from toolcelld.network.dialer import PIECE_BYTES, Dialer, DialError
from toolcelld.network.names import MESSAGE_BYTES_MAX, Names
from toolcelld.network.refusals import Refusals, Refused
from toolcelld.network.relay import relay

__all__ = ["CONNECTIONS_MAX", "Egress"]

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
"""Of one cell at a time; a browser uses six for each host."""
QUESTIONS_AT_ONCE: Final = 16
"""Questions that are answered before the loop does other work."""
QUESTIONS_PAUSE_SECONDS: Final = 0.005
"""After so many questions at once: 3,200 a second from one cell take a twentieth of a processor."""
ACCEPTS_BURST: Final = 128
ACCEPTS_PER_SECOND: Final = 500.0
"""Connections that one cell may open; each takes a fraction of a millisecond of the daemon."""
ANY: Final = "0.0.0.0"  # noqa: S104  # within the cell's own network
LOOPBACK: Final = "127.0.0.1"
LINGER_NONE: Final = struct.pack("ii", 1, 0)


class Egress:
    """Serves the sockets of one cell; ends with `close`.

    Its tasks are its own and no group's: what a cell sends must not be able to end anything else.

    Args:
        granted: The entries of its list of hosts.
        name: Of the worker, for the log.
        on_refused: Called with the first refusals of each call.
    """

    def __init__(self, granted: Sequence[str], name: str, on_refused: Callable[[Refused], None]) -> None:
        self.refusals = Refusals(on_refused)
        self._granted = granted
        self._name = name
        self._names = Names(granted, self.refusals)
        self._dialer = Dialer(granted, self.refusals)
        self._loop = asyncio.get_running_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting: list[asyncio.Task[None]] = []
        self._questions: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._pace = _Pace(ACCEPTS_PER_SECOND, ACCEPTS_BURST)

    def serve(self, opened: socket.socket) -> None:
        """Serve a socket that the cell opened; it is closed with this."""
        opened.setblocking(False)
        if opened.type == socket.SOCK_DGRAM:
            self._questions = opened
            self._loop.add_reader(opened, self._answer)
        else:
            direct = opened.getsockname()[0] == ANY
            self._accepting.append(self._own(self._accept(opened, direct=direct)))

    def close(self) -> None:
        """Drop every connection; returns at once."""
        if self._pause is not None:
            self._pause.cancel()
        if self._questions is not None:
            self._loop.remove_reader(self._questions)
            self._questions.close()
            self._questions = None
        for task in (*self._accepting, *self._connections):
            task.cancel()

    # Names

    def _answer(self) -> None:
        """Answer some questions; after many at once, rest."""
        questions = self._questions
        assert questions is not None
        for _ in range(QUESTIONS_AT_ONCE):
            try:
                message, sender = questions.recvfrom(MESSAGE_BYTES_MAX + 1)
            except BlockingIOError:
                return
            except OSError:
                continue  # an earlier answer found no reader
            if (answer := self._names.answer(message)) is not None:
                with contextlib.suppress(OSError):  # the reader has gone, or does not read
                    questions.sendto(answer, sender)
        self._loop.remove_reader(questions)
        self._pause = self._loop.call_later(QUESTIONS_PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._questions is not None:
            self._loop.add_reader(self._questions, self._answer)

    # Connections

    async def _accept(self, listener: socket.socket, *, direct: bool) -> None:
        with listener:
            while True:
                client, _ = await self._loop.sock_accept(listener)
                if len(self._connections) >= CONNECTIONS_MAX:
                    client.close()
                else:
                    task = self._own(self._connect(client) if direct else self._proxy(client))
                    self._connections.add(task)
                    task.add_done_callback(self._connections.discard)
                if (seconds := self._pace.take()) > 0:
                    await asyncio.sleep(seconds)

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work, name=f"network of {self._name}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The network of %s: %r", self._name, error)

    async def _connect(self, client: socket.socket) -> None:
        """Connect a client to the host whose address it used."""
        with client:
            address, port = client.getsockname()[:2]
            # The kernel has accepted the connection, so that a failure can only be told by a reset.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
            try:
                server = await self._dialer.connect(self._host_at(address, port), port)
            except DialError as error:
                logger.debug("%s: %s", self._name, error)
                return
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes(8))
            try:
                streams = await asyncio.open_connection(sock=client.dup(), limit=PIECE_BYTES)
            except BaseException:
                server[1].close()
                raise
        try:
            await relay(streams, server)
        except* OSError:
            pass  # either side has gone
        finally:
            streams[1].close()

    def _host_at(self, address: str, port: int) -> str:
        name = self._names.name_of(address)
        if name is not None:
            return name
        if address == LOOPBACK and is_granted("localhost", port, self._granted):
            return "localhost"
        return address

    async def _proxy(self, client: socket.socket) -> None:
        streams = await asyncio.open_connection(sock=client, limit=proxy.HEAD_BYTES_MAX)
        try:
            await proxy.serve(streams, self._dialer)
        except* OSError:
            pass  # either side has gone
        finally:
            streams[1].close()


class _Pace:
    """A token bucket."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left = float(burst)
        self._at = time.monotonic()

    def take(self) -> float:
        """Take one; returns the seconds to wait before the next."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second) - 1
        self._at = now
        return -self._left / self._per_second
