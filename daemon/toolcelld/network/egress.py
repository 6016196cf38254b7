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
from functools import partial
from typing import Any, Final

from toolcelld.config.hosts import is_granted
from toolcelld.network import proxy
from toolcelld.network.attempts import Attempts
from toolcelld.network.dialer import PIECE_BYTES, Dialer, DialError
from toolcelld.network.names import MESSAGE_BYTES_MAX, Names
from toolcelld.network.refusals import Refusals, RefusedHost
from toolcelld.network.relay import closing, relay

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
Serve = Callable[[socket.socket], Coroutine[Any, Any, None]]


class Egress:
    """Serves the sockets of one cell; ends with `close`.

    Its tasks are its own and no group's: what a cell sends must not be able to end anything else.

    Args:
        granted: The entries of its list of hosts.
        name: Of the worker, for the log.
        on_refused: Called with the first refusals of each call.
        redact: Returns a text without the values of the tool's secrets; the text itself by default.
    """

    def __init__(
        self,
        granted: Sequence[str],
        name: str,
        on_refused: Callable[[RefusedHost], None],
        redact: Callable[[str], str] = str,
    ) -> None:
        self.refusals = Refusals(on_refused, redact)
        self._granted = granted
        self._name = name
        self._names = Names(granted, self.refusals)
        self.attempts = Attempts(redact)
        self._dialer = Dialer(granted, self.refusals, self.attempts)
        self._loop = asyncio.get_running_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._served: dict[socket.socket, Callable[[], None]] = {}
        """The sockets of the cell, and what is called when one has something."""
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._pace = _Pace(ACCEPTS_PER_SECOND, ACCEPTS_BURST)

    def serve(self, opened: socket.socket) -> None:
        """Serve a socket that the cell opened; it is closed with this."""
        opened.setblocking(False)
        if opened.type == socket.SOCK_DGRAM:
            on_ready = partial(self._answer, opened)
        else:
            direct = opened.getsockname()[0] == ANY
            on_ready = partial(self._accept, opened, self._connect if direct else self._proxy)
        self._served[opened] = on_ready
        self._loop.add_reader(opened, on_ready)

    def close(self) -> None:
        """Drop every connection; returns at once."""
        for pause in self._pauses.values():
            pause.cancel()
        for opened in self._served:
            self._loop.remove_reader(opened)
            opened.close()
        self._served.clear()
        for task in self._connections:
            task.cancel()

    def _rest(self, opened: socket.socket, seconds: float) -> None:
        """Leave a socket alone for some time."""
        self._loop.remove_reader(opened)
        self._pauses[opened] = self._loop.call_later(seconds, self._go_on, opened)

    def _go_on(self, opened: socket.socket) -> None:
        del self._pauses[opened]
        self._loop.add_reader(opened, self._served[opened])

    def named(self, place: str) -> str:
        """Return a place, "host:port" or "host", with the name that its address stands for in the cell."""
        host, colon, port = place.partition(":")
        return f"{self._names.name_of(host) or host}{colon}{port}"

    # Names

    def _answer(self, questions: socket.socket) -> None:
        """Answer some questions; after many at once, rest."""
        for _ in range(QUESTIONS_AT_ONCE):
            try:
                message, sender = questions.recvfrom(MESSAGE_BYTES_MAX + 1)
            except BlockingIOError:
                return
            except OSError:
                continue  # an earlier answer found no reader
            if (answer := self._names.answer(message)) is not None:
                with contextlib.suppress(OSError):  # the reader has closed its socket, or does not read
                    questions.sendto(answer, sender)
        self._rest(questions, QUESTIONS_PAUSE_SECONDS)

    # Connections

    def _accept(self, listener: socket.socket, serve: Serve) -> None:
        """Accept one connection; its socket is closed with its task, also with one that never begins."""
        try:
            client, _ = listener.accept()
        except OSError:
            return  # it was reset meanwhile
        client.setblocking(False)
        if len(self._connections) >= CONNECTIONS_MAX:
            client.close()
        else:
            task = self._loop.create_task(_until_closed(serve, client), name=f"network of {self._name}")
            self._connections.add(task)
            task.add_done_callback(partial(self._ended, client))
        if (seconds := self._pace.take()) > 0:
            self._rest(listener, seconds)

    def _ended(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        client.close()
        self._connections.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The network of %s: %r", self._name, error)

    async def _connect(self, client: socket.socket) -> None:
        """Connect a client to the host whose address it used."""
        address, port = client.getsockname()[:2]
        # The kernel has accepted the connection, so a reset is the only way to report a failure.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
        try:
            server = await self._dialer.connect(self._host_at(address, port), port)
        except DialError as error:
            logger.debug("%s: %s", self._name, error)
            return
        with closing(server):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes(8))
            streams = await asyncio.open_connection(sock=client.dup(), limit=PIECE_BYTES)
            with closing(streams):
                await relay(streams, server)

    def _host_at(self, address: str, port: int) -> str:
        name = self._names.name_of(address)
        if name is not None:
            return name
        if address == LOOPBACK and is_granted("localhost", port, self._granted):
            return "localhost"
        return address

    async def _proxy(self, client: socket.socket) -> None:
        streams = await asyncio.open_connection(sock=client.dup(), limit=proxy.HEAD_BYTES_MAX)
        with closing(streams):
            await proxy.serve(streams, self._dialer)


async def _until_closed(serve: Serve, client: socket.socket) -> None:
    """Serve a client; a side that closes the connection is no failure."""
    try:
        await serve(client)
    except* OSError:
        pass


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
