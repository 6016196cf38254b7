"""What an ended call leaves: nothing that waits for the garbage collector, which a busy process rarely runs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.garbage import garbage

from toolcell.client import Kind, Session, connect

from .scripted import daemon, echo

pytestmark = pytest.mark.anyio


async def awaited(session: Session) -> None:
    assert (await session.call("echo", {"text": "x" * 1000})).ok


async def large(session: Session) -> None:
    assert (await session.call("echo", {"text": "x" * 100_000})).ok


async def iterated(session: Session) -> None:
    async for _ in session.call("echo"):
        pass


async def stopped(session: Session) -> None:
    call = session.call("wait")
    call.abort("enough")
    assert (await call).kind is Kind.aborted


async def cancelled(session: Session) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await session.call("wait")


async def refused(session: Session) -> None:
    call = session.call("wait", call_id="c-1")
    assert (await session.call("echo", call_id="c-1")).kind is Kind.refused
    call.abort()
    await call


@pytest.mark.parametrize("use", [awaited, large, iterated, stopped, cancelled, refused])
async def test_an_ended_call_is_freed_when_it_is_let_go(
    tmp_path: Path, use: Callable[[Session], Awaitable[None]]
) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        await use(session)
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                await use(session)
            assert garbage() == {}
        finally:
            gc.enable()
