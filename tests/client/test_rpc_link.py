"""What a connection writes in one piece, and what it reads into."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from toolcell.client._grpc.http2 import DATA, PREFACE, RST_STREAM, SETTINGS
from toolcell.client._grpc.rpc import RpcLink

pytestmark = pytest.mark.anyio


class Wire:
    """A transport that keeps each piece that is written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, piece: bytes) -> None:
        """Keep it."""
        assert not self.closed
        self.pieces.append(piece)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        self.link.connection_lost(None)

    abort = close
    link: RpcLink


def linked() -> tuple[RpcLink, Wire]:
    """A link whose peer has sent its settings."""
    link, wire = RpcLink("token"), Wire()
    wire.link = link
    link.connection_made(cast("asyncio.Transport", wire))
    read(link, frame(SETTINGS, 0, b""))
    return link, wire


def frame(kind: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2 without flags."""
    return b"%b%c\0%b%b" % (len(payload).to_bytes(3, "big"), kind, stream.to_bytes(4, "big"), payload)


def message(text: bytes) -> bytes:
    """A message of gRPC."""
    return b"\0" + len(text).to_bytes(4, "big") + text


def read(link: RpcLink, data: bytes) -> None:
    """Have a link read this, as a transport does."""
    link.get_buffer(-1)[: len(data)] = data
    link.buffer_updated(len(data))


async def test_each_message_is_written_at_once() -> None:
    link, wire = linked()
    rpc = link.begin("/a/B", lambda _: None)
    before = len(wire.pieces)
    rpc.send(b"one")
    rpc.send(b"two")
    assert [piece[-3:] for piece in wire.pieces[before:]] == [b"one", b"two"]


async def test_what_is_gathered_is_written_in_one_piece_at_the_end_of_the_turn() -> None:
    link, wire = linked()
    rpc = link.begin("/a/B", lambda _: None)
    rpc.send(b"one")
    before = len(wire.pieces)
    link.gather()
    link.gather()
    rpc.send(b"two")
    rpc.send(b"three")
    assert len(wire.pieces) == before
    await asyncio.sleep(0)
    assert len(wire.pieces) == before + 1
    assert wire.pieces[-1].endswith(frame(DATA, 1, message(b"two")) + frame(DATA, 1, message(b"three")))
    rpc.send(b"four")
    assert len(wire.pieces) == before + 2


async def test_a_link_that_is_closed_meanwhile_has_written_what_was_gathered() -> None:
    link, wire = linked()
    rpc = link.begin("/a/B", lambda _: None)
    link.gather()
    rpc.send(b"last")
    await link.close()
    sent = b"".join(wire.pieces)
    assert sent.startswith(PREFACE)
    assert sent.endswith(frame(DATA, 1, message(b"last")) + frame(RST_STREAM, 1, b"\0\0\0\x08"))
    await asyncio.sleep(0)


async def test_a_link_that_is_lost_meanwhile_writes_nothing_more() -> None:
    link, wire = linked()
    rpc = link.begin("/a/B", lambda _: None)
    link.gather()
    rpc.send(b"last")
    pieces = len(wire.pieces)
    link.drop()
    await asyncio.sleep(0)
    assert len(wire.pieces) == pieces
    assert rpc.ended.done()


async def test_links_that_read_into_one_buffer_keep_what_they_have_read_in_part() -> None:
    found: list[bytes] = []
    links = [linked()[0] for _ in range(2)]
    for link in links:
        link.begin("/a/B", found.append)
    whole = frame(DATA, 1, message(b"abcdef"))
    read(links[0], whole[:16])
    read(links[1], frame(DATA, 1, message(b"another")))
    read(links[0], whole[16:])
    assert found == [b"another", b"abcdef"]
