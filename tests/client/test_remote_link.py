"""The pings of a connection to another machine."""

from __future__ import annotations

import asyncio
import socket

import anyio
import pytest

from toolcell.client._grpc import remote as links

pytestmark = pytest.mark.anyio

PING = 6
"""The type of a frame of HTTP/2 (RFC 9113, 6.7)."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def types(sent: bytes) -> list[int]:
    """The types of the frames that a client has sent."""
    found: list[int] = []
    place = len(PREFACE)
    while place + 9 <= len(sent):
        found.append(sent[place + 3])
        place += 9 + int.from_bytes(sent[place : place + 3], "big")
    return found


async def test_a_machine_that_stands_still_finds_one_ping_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More would be taken for a flood, and end the connection of a machine that has come back."""
    monkeypatch.setattr(links, "PING_SECONDS", 0.001)
    here, there = socket.socketpair()
    with there:
        there.setblocking(False)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(lambda: links.RemoteLink("ticket"), sock=here)
        sent = b""
        with anyio.fail_after(30):
            while data := await loop.sock_recv(there, 65_536):  # until the connection is given up
                sent += data
        await link.close()
    assert types(sent).count(PING) == 1
