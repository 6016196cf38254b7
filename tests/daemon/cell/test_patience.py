"""A time limit that does not take our own lateness for another's silence."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref

import pytest

from toolcelld.cell import patience as module
from toolcelld.cell.patience import patience

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "LATE_SECONDS", 0.1)


async def test_an_answer_that_came_while_the_loop_was_late_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    answer = asyncio.get_running_loop().create_future()

    def be_late() -> None:
        time.sleep(0.5)
        asyncio.get_running_loop().call_later(0.02, answer.set_result, "there")

    asyncio.get_running_loop().call_soon(be_late)
    async with patience(0.2):
        assert await answer == "there"
    assert "the event loop was late" in caplog.text


async def test_silence_has_an_end() -> None:
    with pytest.raises(TimeoutError):
        async with patience(0.05):
            await asyncio.Event().wait()


async def test_what_has_waited_is_freed_without_the_garbage_collector() -> None:
    """It waits for each cell and each worker; what they leave would lie there until the old objects are searched."""

    async def wait() -> None:
        async with patience(60):
            await asyncio.sleep(0)

    gc.disable()
    try:
        task = asyncio.create_task(wait())
        await task
        kept = weakref.ref(task)
        del task
        await asyncio.sleep(0)  # the loop has let go of it
        assert kept() is None
    finally:
        gc.enable()
