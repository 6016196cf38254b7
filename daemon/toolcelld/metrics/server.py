"""The HTTP server for metrics and health: three paths, GET alone, one request for each connection.

It is written on asyncio's streams, because what is asked of it is a line, and a server of the standard library would take
a thread for each connection. A page in a browser could be led to it by a name that resolves to the loopback address, so a
request on TCP must name that address.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, TypeAlias

from toolcelld.config.values import LOOPBACK, listen_address
from toolcelld.daemon import Daemon

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 8192
CONNECTIONS_MAX: Final = 32
"""A monitoring system opens one or two."""
REQUEST_SECONDS_MAX: Final = 10.0
"""For a whole exchange; Prometheus waits as long by default."""
TEXT: Final = "text/plain; charset=utf-8"

Answer: TypeAlias = "tuple[HTTPStatus, bytes, str]"
Page: TypeAlias = Callable[[str], Awaitable[Answer]]


@asynccontextmanager
async def serving(daemon: Daemon) -> AsyncGenerator[None]:
    """Serve the metrics of a daemon as `[metrics]` says; an address that cannot be used is logged, and the daemon goes on."""
    listen = daemon.config.metrics.listen
    if not listen:
        yield
        return
    from toolcelld.metrics.figures import Figures  # loads the library

    figures = Figures(daemon)

    async def metrics(accept: str) -> Answer:
        return HTTPStatus.OK, *await figures.text(accept)

    async def alive(_: str) -> Answer:
        return HTTPStatus.OK, b"ok\n", TEXT

    async def ready(_: str) -> Answer:
        if daemon.sessions.draining:
            return HTTPStatus.SERVICE_UNAVAILABLE, b"draining\n", TEXT
        return HTTPStatus.OK, b"ok\n", TEXT

    server = _MetricsServer({"/metrics": metrics, "/healthz": alive, "/readyz": ready})
    try:
        await server.start(listen)
        yield
    finally:
        await server.aclose()
        await figures.aclose()


class _MetricsServer:
    def __init__(self, pages: dict[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._exchanges: set[asyncio.Task[None]] = set()
        self._hosts: tuple[str, ...] | None = None  # those that a request may name; None: any

    async def start(self, listen: str) -> None:
        """Listen on "HOST:PORT" or on the path of a socket."""
        try:
            if listen.startswith("/"):
                self._server = await asyncio.start_unix_server(self._on_connection, listen)
            else:
                host, port = listen_address(listen)
                self._hosts = (*LOOPBACK, f"[{host}]")
                self._server = await asyncio.start_server(self._on_connection, sock=_bound(host, port))
        except OSError as error:
            logger.warning(
                "No metrics: [metrics] listen = %r cannot be used: %s. Calls are served; change it and restart.",
                listen,
                error,
            )
            return
        logger.info("Metrics are served on %s.", listen)

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        for exchange in list(self._exchanges):
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._exchanges.add(task)
        try:
            if len(self._exchanges) <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_SECONDS_MAX):
                    await self._exchange(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # the peer is slow or has left
        finally:
            self._exchanges.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, body, media_type, with_body = HTTPStatus.BAD_REQUEST, b"not a request\n", TEXT, True
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            status, body = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"too large\n"
        else:
            if len(head) > HEAD_BYTES_MAX:
                status, body = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"too large\n"
            elif (request := _parsed(head)) is not None:
                with_body = request[0] != "HEAD"
                status, body, media_type = await self._answer(*request)
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {media_type}",
            f"Content-Length: {len(body)}",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        lines += ["Allow: GET, HEAD"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + (body if with_body else b""))
        await writer.drain()

    async def _answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        page = self._pages.get(path.partition("?")[0])
        if self._hosts is not None and _host(headers.get("host", "")) not in self._hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, b"ask by the address that is listened on\n", TEXT
        if page is None:
            return HTTPStatus.NOT_FOUND, f"there is {', '.join(self._pages)}\n".encode(), TEXT
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, b"GET\n", TEXT
        return await page(headers.get("accept", ""))


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket with the address; by its numbers, since to look up a name takes the loop a pool of threads."""
    family, number = (socket.AF_INET6, host) if ":" in host else (socket.AF_INET, "127.0.0.1")
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((number, port))
    except OSError:
        bound.close()
        raise
    return bound


def _host(value: str) -> str:
    """Return the host of a Host header, without its port."""
    if value.startswith("["):
        return value.partition("]")[0] + "]"
    return value.partition(":")[0].lower()


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]] | None:
    """Return the method, the path and the headers of a request; None for anything else."""
    with contextlib.suppress(ValueError):
        first, *rest = head[:-4].decode("ascii").split("\r\n")
        method, path, version = first.split(" ")
        if version.startswith("HTTP/1."):
            pairs = (line.partition(":") for line in rest)
            return method, path, {name.lower(): value.strip() for name, _, value in pairs}
    return None
