# pyright: reportPrivateUsage=false
"""The end of a cell, as its keeper is told of it."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from toolcelld.cell.cell import Cell, Receiver
from toolcelld.cell.zygote import ZygoteFailed

pytestmark = pytest.mark.anyio

WORDS_MAX = 10_000


@pytest.mark.parametrize("full", [False, True])
async def test_a_keeper_is_told_of_the_end_also_when_its_queue_is_full(full: bool) -> None:
    """The kernel queues eleven words by default, and a keeper that waits for a processor reads none."""
    cell = Cell(Receiver())
    cell._life, keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    cell._life.setblocking(False)
    cell._spawned = SimpleNamespace(pid=0, pidfd=-1)  # type: ignore[assignment]  # of no process
    with cell._life, keeper:
        keeper.settimeout(20)
        words = 0
        while full and cell._send_to_keeper(b"abort"):
            words += 1
            assert words < WORDS_MAX
        cell.end()
        await asyncio.sleep(0)
        for _ in range(words):
            assert keeper.recv(64) == b"abort"
        assert keeper.recv(64) == (b"" if full else b"end")  # of one effect
        cell.ended.set_result(SimpleNamespace())  # type: ignore[arg-type]  # nobody looks at it
        assert cell._end_task is not None
        await cell._end_task


async def test_a_cell_without_descriptors_says_how_many_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def held(_: int) -> tuple[int, int]:
        return 64, 64

    monkeypatch.setattr("resource.getrlimit", held)
    zygote: Any = None  # it is not asked
    with pytest.raises(ZygoteFailed, match="it may have 64, and needs 128 or more"):
        await Cell.start(zygote, Receiver())


class Owner(Receiver):
    """Holds its cell, as a worker does."""

    def __init__(self) -> None:
        self.cell = Cell(self)


async def test_an_ended_cell_is_freed_without_the_garbage_collector() -> None:
    """It lives long enough to be among the old objects, which are rarely searched."""
    owner = Owner()
    kept = weakref.ref(owner), weakref.ref(owner.cell)
    gc.disable()
    try:
        owner.cell._close()
        del owner
        assert [each() for each in kept] == [None, None]
    finally:
        gc.enable()
