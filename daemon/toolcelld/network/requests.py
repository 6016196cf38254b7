"""Reads what a client asks of the proxy: HTTP's CONNECT and absolute addresses, and SOCKS5.

Both name one host and port. Of an HTTP header only the fields about the connection are replaced; the `Host` that is sent
is the host that was compared with the list.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from toolcelld.config.hosts import as_address

_REQUEST = re.compile(r"([A-Z]{1,20}) ([^ ]+) (HTTP/1\.[01])")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_-]{1,63})*\.?\Z")

HOPS: Final = frozenset(
    {"host", "connection", "proxy-connection", "proxy-authorization", "keep-alive", "upgrade"}
)

# RFC 1928
SOCKS_VERSION: Final = 5
SOCKS_NO_AUTHENTICATION: Final = 0
SOCKS_CONNECT: Final = 1


@dataclass(frozen=True, slots=True)
class Target:
    """The host of a request, and what is to be sent there first."""

    host: str  # lower case, without a final dot
    port: int
    head: bytes = b""  # empty for a tunnel


def read_target(head: bytes) -> Target | None:
    """Read an HTTP request; None for one that is not made to a proxy."""
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
    if not _is_host(host) or parts.username is not None:
        return None
    if method == "CONNECT":
        return Target(host, port) if port and not (parts.path or parts.query) else None
    if parts.scheme != "http":
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [field for field in fields if field.partition(":")[0].strip().lower() not in HOPS]
    authority = f"[{host}]" if ":" in host else host
    lines = [f"{method} {path} {version}", f"Host: {authority}" + (f":{port}" if port else ""), *kept]
    return Target(host, port or 80, "\r\n".join([*lines, "Connection: close", "", ""]).encode("ascii"))


def _is_host(host: str) -> bool:
    return _NAME.match(host) is not None or as_address(host) is not None


async def read_socks_target(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Target | None:
    """Read a SOCKS5 request after its version; None for an invalid one, and for commands other than CONNECT.

    Raises `asyncio.IncompleteReadError` if the client closes the connection before.
    """
    (count,) = await reader.readexactly(1)
    if SOCKS_NO_AUTHENTICATION not in await reader.readexactly(count):
        writer.write(b"\x05\xff")  # no acceptable method
        return None
    writer.write(bytes((SOCKS_VERSION, SOCKS_NO_AUTHENTICATION)))
    version, command, _, kind = await reader.readexactly(4)
    match kind:
        case 1:
            host = str(ipaddress.IPv4Address(await reader.readexactly(4)))
        case 4:
            host = str(ipaddress.IPv6Address(await reader.readexactly(16)))
        case 3:
            (length,) = await reader.readexactly(1)
            host = (await reader.readexactly(length)).decode("ascii", "replace").lower().removesuffix(".")
        case _:
            return None
    port = int.from_bytes(await reader.readexactly(2))
    if version != SOCKS_VERSION or command != SOCKS_CONNECT or not port or not _is_host(host):
        return None
    return Target(host, port)
