"""Carries bytes between two connections, both ways, until both sides have ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from toolcelld.network.dialer import PIECE_BYTES, Streams


@contextlib.contextmanager
def closing(streams: Streams) -> Generator[None]:
    """Close a connection after the body: after its buffer was sent or, if the body raises, at once.

    A buffer that the other side does not read would keep the socket of a cell that has ended.
    """
    try:
        yield
    except BaseException:
        streams[1].transport.abort()
        raise
    streams[1].close()


async def relay(client: Streams, server: Streams) -> None:
    """Carry between a client and a server until both have ended. Raises a group of `OSError`."""
    async with asyncio.TaskGroup() as both:
        both.create_task(_carry(client[0], server[1]))
        both.create_task(_carry(server[0], client[1]))


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE_BYTES):
        target.write(piece)
        await target.drain()
    with contextlib.suppress(OSError):
        target.write_eof()
