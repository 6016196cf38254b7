"""The handover brings sockets into the daemon until the cell closes its end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from toolcelld.cell.handover import Handover

pytestmark = pytest.mark.anyio


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The daemon's end, and the cell's."""
    daemon, cell = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    daemon.setblocking(False)
    with daemon, cell:
        yield daemon, cell


async def test_every_socket_arrives_and_the_channel_closes_with_the_cells_end(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    daemon, cell = ends
    received: list[socket.socket] = []
    handover = Handover(daemon)
    handover.receive(received.append)
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(3)]
        socket.send_fds(cell, [b"sockets"], [one.fileno() for one in opened[:2]])
        socket.send_fds(cell, [b"sockets"], [opened[2].fileno()])
        cell.close()
        for _ in range(20):  # everything is in the kernel's queue
            await asyncio.sleep(0)
        assert daemon.fileno() == -1
        inodes = [os.fstat(one.fileno()).st_ino for one in received]
        assert inodes == [os.fstat(one.fileno()).st_ino for one in opened]
    for one in received:
        one.close()
    handover.close()


async def test_a_handover_that_is_closed_takes_no_socket(ends: tuple[socket.socket, socket.socket]) -> None:
    daemon, cell = ends
    handover = Handover(daemon)
    handover.close()
    handover.close()
    with pytest.raises(BrokenPipeError):
        cell.send(b"sockets")
