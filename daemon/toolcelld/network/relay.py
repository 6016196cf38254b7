"""Carries bytes between two connections, both ways, until both sides have ended."""

from __future__ import annotations

import asyncio
import contextlib

from toolcelld.network.dialer import PIECE_BYTES, Streams

__all__ = ["relay"]


async def relay(client: Streams, server: Streams) -> None:
    """Carry between a client and a server; closes the server's connection. Raises a group of `OSError`."""
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_carry(client[0], server[1]))
            both.create_task(_carry(server[0], client[1]))
    finally:
        server[1].close()


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE_BYTES):
        target.write(piece)
        await target.drain()
    with contextlib.suppress(OSError):
        target.write_eof()
