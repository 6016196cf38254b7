"""The HTTP server: a socket, uvicorn on it, and an end that leaves nothing.

uvicorn has no bound for connections that say nothing, or say it one byte a minute, and closes a socket to which its peer
still sends; `TimedProtocol` adds both.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket as sockets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolcell.adapters.http.lingering import LingeringTransport

CONNECTIONS_MAX = 256  # a host has a few: a stream for events and one for each call
HEAD_SECONDS = 30.0  # for the head of a request, and between two requests
HEAD_BYTES_MAX = 64 * 1024
BACKLOG = 64
LAST_WORDS_SECONDS = 1  # for who is in the middle of a body when the server ends


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str  # an IP address; "" for a Unix socket
    port: int
    path: str = ""  # of a Unix socket, absolute

    @classmethod
    def parse(cls, text: str) -> Address:
        """From "8137", "127.0.0.1:8137", "[::1]:8137", "localhost:8137" or the path of a socket, "./http.sock".

        Raises ValueError.
        """
        if "/" in text:
            return cls("", 0, os.path.abspath(text))
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if colon else "localhost"
        if not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise ValueError(f"{port!r} is no port")
        if host == "localhost":
            host = "127.0.0.1"
        address = ipaddress.ip_address(host)  # names can lead elsewhere tomorrow
        if address.is_unspecified:
            raise ValueError(f"{host} is every address; name the one that hosts are to use")
        return cls(str(address), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return bool(self.path) or ipaddress.ip_address(self.host).is_loopback

    @property
    def authorities(self) -> list[str]:
        """What a Host may say to mean it."""
        if self.path:
            return ["localhost"]
        names = ["localhost", "127.0.0.1", "[::1]"] if self.is_loopback else []
        return [f"{name}:{self.port}" for name in {_bracketed(self.host), *names}]

    @property
    def origin(self) -> str:
        """Its address on the web; for a socket what a client that is told the socket asks for."""
        if self.path:
            return "http://localhost"
        return f"http://{_bracketed(self.host)}:{self.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class TimedProtocol(H11Protocol):
    """A connection that ends when its next request is not there in time, and never ahead of an answer."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._end = LingeringTransport(
            transport, self.loop, lambda: self.conn.their_state in (h11.SEND_BODY, h11.ERROR)
        )
        super().connection_made(self._end)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        if self._end.lingers:
            self._end.drop(data)
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.lost()
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(HEAD_SECONDS, self._lose_patience)

    def _lose_patience(self) -> None:
        if not self.cycle or self.cycle.response_complete:  # there is none before the first
            self.transport.abort()


class HttpServer:
    """A socket that is bound and listens, and is later served."""

    def __init__(self, address: Address) -> None:
        """Raises OSError if the address is in use."""
        self._socket = _unix_socket(address.path) if address.path else _network_socket(address)
        self.address = address if address.path else Address(address.host, int(self._socket.getsockname()[1]))
        self._inode = os.lstat(address.path).st_ino if address.path else 0
        self._server: _UvicornServer | None = None

    def close(self) -> None:
        """Give the socket up; harmless twice."""
        if self._inode:
            with suppress(OSError):
                if (
                    os.lstat(self.address.path).st_ino == self._inode
                ):  # else it is that of another server by now
                    os.unlink(self.address.path)
            self._inode = 0
        self._socket.close()

    def end(self) -> None:
        """Have `serve` return; harmless twice."""
        if self._server is not None:
            self._server.should_exit = True

    async def serve(self, app: ASGIApp) -> None:
        """Serve until the end; returns when every request has been answered or given up."""
        config = uvicorn.Config(
            app,
            http=TimedProtocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(HEAD_SECONDS),
            timeout_graceful_shutdown=LAST_WORDS_SECONDS,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self._server = _UvicornServer(config)
        await self._server.serve([self._socket])


def _network_socket(address: Address) -> sockets.socket:
    family = sockets.AF_INET6 if ":" in address.host else sockets.AF_INET
    socket = sockets.socket(family, sockets.SOCK_STREAM)
    try:
        socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        socket.bind((address.host, address.port))
        socket.listen(BACKLOG)  # who comes before we serve waits
    except OSError:
        socket.close()
        raise
    return socket


def _unix_socket(path: str) -> sockets.socket:
    """A socket that this user alone can connect to; one without a listener is replaced."""
    with suppress(OSError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as other:
                other.setblocking(False)  # one whose backlog is full is there, and would be waited for
                try:
                    other.connect(path)
                except ConnectionRefusedError:
                    os.unlink(path)
    socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        os.fchmod(socket.fileno(), 0o600)  # the file is made with it
        socket.bind(path)
        os.chmod(path, 0o600)
        socket.listen(BACKLOG)  # until then no program can connect
    except OSError:
        socket.close()
        raise
    return socket


class _UvicornServer(uvicorn.Server):
    """uvicorn's, without its hand on the signals of the process."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
