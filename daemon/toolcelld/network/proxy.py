"""The way out for a cell that may reach some hosts: an HTTP proxy that lives in the daemon.

A strict cell has a network of its own with nothing in it but a loopback. Its worker opens a listener
there, and hands it to the daemon: connections made inside the cell are accepted outside of it. So there
is no bridge, no route and no name resolution in the cell, and nothing to configure on the host.

It speaks CONNECT, for everything with TLS, and plain HTTP with absolute addresses. The name that is
asked for is compared with the list, and then resolved here: what is connected to is what was compared.
A name that is not an address and yet leads to this machine or its link is refused, so that a
name server cannot turn a granted host into the services of the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import ipaddress
import logging
import re
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["EgressProxy", "Target", "is_granted", "read_target"]

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 16 * 1024
"""A request line and its header; servers take less."""
HEAD_SECONDS_MAX: Final = 10.0
CONNECT_SECONDS_MAX: Final = 20.0
CONNECTIONS_MAX: Final = 64
"""Of one cell at a time; a browser uses six for each host."""
PIECE_BYTES: Final = 64 * 1024
PORTS: Final = (443, 80)
"""What an entry without a port means."""

_REQUEST = re.compile(r"([A-Z]{1,20}) ([^ ]+) (HTTP/1\.[01])")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_-]{1,63})*\.?\Z")


class _Refused(Exception):
    """The request is answered with this status and these words."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a request is for, and what is to be sent there first."""

    host: str  # lower case, without a final dot
    port: int
    head: bytes  # empty for a tunnel


class EgressProxy:
    """The proxy of one cell; ends with `close`.

    Its tasks are its own and no group's: what a cell sends must not be able to end anything else.
    """

    def __init__(self, granted: Sequence[str], name: str) -> None:
        self._granted = granted
        self._name = name
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    def start(self, listener: socket.socket) -> None:
        """Serve connections to the listener."""
        listener.setblocking(False)
        self._accepting = self._own(self._accept(listener))

    def close(self) -> None:
        """Drop every connection; returns at once."""
        for task in (self._accepting, *self._connections):
            if task is not None:
                task.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                client, _ = await loop.sock_accept(listener)
                if len(self._connections) >= CONNECTIONS_MAX:
                    client.close()
                    continue
                task = self._own(self._serve(client))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"proxy of {self._name}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("The proxy of %s: %r", self._name, error)

    async def _serve(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client, limit=HEAD_BYTES_MAX)
        try:
            try:
                target = await self._asked(reader)
                theirs, ours = await self._connected(target)
            except _Refused as refused:
                logger.info("%s: %s", self._name, refused)
                body = f"toolcell: {refused}\n".encode()
                writer.write(
                    b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                    % (refused.status.encode(), len(body))
                )
                writer.write(body)
                await writer.drain()
                return
            try:
                if target.head:
                    ours.write(target.head)
                else:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                async with asyncio.TaskGroup() as both:
                    both.create_task(_carry(reader, ours))
                    both.create_task(_carry(theirs, writer))
            finally:
                ours.close()
        except* OSError:
            pass  # either side has gone
        finally:
            writer.close()

    async def _asked(self, reader: asyncio.StreamReader) -> Target:
        try:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise _Refused("400 Bad Request", "that is no HTTP request") from None
        target = read_target(head)
        if target is None:
            raise _Refused("400 Bad Request", "a proxy takes CONNECT host:port, and http:// addresses")
        if not is_granted(target.host, target.port, self._granted):
            raise _Refused(
                "403 Forbidden",
                f"{target.host}:{target.port} is not granted; the network of this tool is {', '.join(self._granted)}",
            )
        return target

    async def _connected(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
                addresses = [str(entry[4][0]) for entry in found]
                for address in addresses:
                    if _leads_home(address) and not _is_home(target.host):
                        raise _Refused(
                            "403 Forbidden", f"{target.host} leads to {address}, which is this machine"
                        )
                for address in addresses:
                    with contextlib.suppress(OSError):
                        return await asyncio.open_connection(address, target.port, limit=PIECE_BYTES)
        except TimeoutError:
            raise _Refused("504 Gateway Timeout", f"{target.host} does not answer") from None
        except OSError as error:
            raise _Refused("502 Bad Gateway", f"{target.host} is not found: {error.strerror}") from error
        raise _Refused("502 Bad Gateway", f"{target.host}:{target.port} cannot be reached")


def read_target(head: bytes) -> Target | None:
    """Whom a request is for; None for what is no request to a proxy."""
    try:
        text = head.decode("ascii")
    except UnicodeDecodeError:
        return None
    line, *fields = text.removesuffix("\r\n\r\n").split("\r\n")
    if any(_CONTROL.search(part) for part in (line, *fields)):
        return None
    match _REQUEST.fullmatch(line):
        case None:
            return None
        case words:
            method, address, version = words.groups()
    try:
        parts = urlsplit(f"//{address}" if method == "CONNECT" else address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    host = host.removesuffix(".")
    if not (_NAME.match(host) or _address(host)) or parts.username is not None:
        return None
    if method == "CONNECT":
        return Target(host, port, b"") if port and not (parts.path or parts.query) else None
    if parts.scheme != "http":
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # Of the header only what concerns the connection is ours; the host is the one that was compared.
    kept = [field for field in fields if field.partition(":")[0].strip().lower() not in HOPS]
    authority = f"[{host}]" if ":" in host else host
    told = [f"{method} {path} {version}", f"Host: {authority}" + (f":{port}" if port else ""), *kept]
    return Target(host, port or 80, "\r\n".join([*told, "Connection: close", "", ""]).encode("ascii"))


HOPS: Final = frozenset(
    {"host", "connection", "proxy-connection", "proxy-authorization", "keep-alive", "upgrade"}
)


def is_granted(host: str, port: int, granted: Sequence[str]) -> bool:
    """Whether an entry of the list means this host and port: "host", "*.host" or either with ":port"."""
    for entry in granted:
        name, colon, number = entry.lower().rpartition(":")
        if not colon or not number.isdigit():
            name, number = entry.lower(), ""
        if fnmatch.fnmatchcase(host, name) and (port == int(number) if number else port in PORTS):
            return True
    return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _leads_home(address: str) -> bool:
    parsed = _address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed is None or parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified


def _is_home(host: str) -> bool:
    """Whether the name says itself that this machine is meant; who grants it means it."""
    return host == "localhost" or _address(host) is not None


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE_BYTES):
        target.write(piece)
        await target.drain()
    with contextlib.suppress(OSError):
        target.write_eof()
