"""Serves one connection to the proxy of a cell: HTTP's CONNECT and absolute addresses, and SOCKS5 on the same port.

Clients need it for literal addresses, which no resolver sees; by name they need no proxy. A refusal is in the status line,
because urllib and curl show nothing else of the answer to CONNECT.
"""

from __future__ import annotations

import asyncio
from typing import Final

from toolcelld.network.dialer import Dialer, DialError, Reason, Streams
from toolcelld.network.relay import closing, relay
from toolcelld.network.requests import SOCKS_VERSION, Target, read_socks_target, read_target

HEAD_BYTES_MAX: Final = 16 * 1024
"""A request line and its header; servers take less."""
HEAD_SECONDS_MAX: Final = 10.0
REASON_CHARACTERS_MAX: Final = 200
_STATUS: Final = {
    Reason.NOT_GRANTED: "403 Forbidden",
    Reason.NOT_FOUND: "502 Bad Gateway",
    Reason.UNREACHABLE: "502 Bad Gateway",
    Reason.NO_ANSWER: "504 Gateway Timeout",
}
_SOCKS_REPLY: Final = {
    Reason.NOT_GRANTED: 2,
    Reason.NOT_FOUND: 4,
    Reason.UNREACHABLE: 5,
    Reason.NO_ANSWER: 4,
}
SOCKS_OTHER_FAILURE: Final = 1


async def serve(client: Streams, dialer: Dialer) -> None:
    """Read the request of a client, connect it, and relay until both sides have ended. Raises `OSError`."""
    reader, writer = client
    try:
        async with asyncio.timeout(HEAD_SECONDS_MAX):
            first = await reader.readexactly(1)
            socks = first[0] == SOCKS_VERSION
            if socks:
                target = await read_socks_target(reader, writer)
            else:
                target = read_target(first + await reader.readuntil(b"\r\n\r\n"))
                if target is None:
                    text = "a proxy takes CONNECT host:port, and http:// addresses"
                    await _answer(writer, "400 Bad Request", text)
                    return
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        await _answer(writer, "400 Bad Request", "that is no HTTP request")
        return
    if target is None:
        writer.write(_socks_reply(SOCKS_OTHER_FAILURE))
        await writer.drain()
        return
    await (_serve_socks if socks else _serve_http)(client, target, dialer)


async def _serve_http(client: Streams, target: Target, dialer: Dialer) -> None:
    try:
        server = await dialer.connect(target.host, target.port)
    except DialError as error:
        await _answer(client[1], _STATUS[error.reason], str(error))
        return
    with closing(server):
        if target.head:
            server[1].write(target.head)
        else:
            client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await relay(client, server)


async def _serve_socks(client: Streams, target: Target, dialer: Dialer) -> None:
    try:
        server = await dialer.connect(target.host, target.port)
    except DialError as error:
        client[1].write(_socks_reply(_SOCKS_REPLY[error.reason]))
        await client[1].drain()
        return
    with closing(server):
        client[1].write(_socks_reply(0))
        await relay(client, server)


def _socks_reply(code: int) -> bytes:
    return bytes((SOCKS_VERSION, code, 0, 1)) + bytes(6)


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"toolcell: {text}\n".encode()
    # The text is of ASCII: what `read_target` lets through, and the entries of the configuration.
    line = f"{status}: {text[:REASON_CHARACTERS_MAX]}".encode("ascii", "replace")
    writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (line, len(body)))
    writer.write(body)
    await writer.drain()
