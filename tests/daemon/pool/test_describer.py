"""When a file is described, and how many cells of describers end at the same time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from toolcelld.catalog.describing.description import Description
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.describer import LEAVING_MAX, Describer

pytestmark = pytest.mark.anyio

SPEC = cast("CellSpec", None)


class DescribingWorker:
    """A worker that has described its file, and whose cell ends when the test says so."""

    def __init__(self, printed: bytes) -> None:
        self.printed = printed
        self.cell = SimpleNamespace(ended=asyncio.get_running_loop().create_future(), end=lambda: None)
        self.state = WorkerState.IDLE

    async def start(self, *_: object, **__: object) -> Description:
        return Description()

    def fire(self, _: WorkerEvent) -> None: ...


def a_describer(born: list[DescribingWorker], printed: bytes = b"") -> Describer:
    def make(*_: object) -> Any:
        born.append(DescribingWorker(printed))
        return born[-1]

    return Describer(lambda _: cast("Any", None), load_seconds=10, make_worker=make)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_file_is_described_before_its_cell_has_ended_and_few_cells_end_at_once() -> None:
    born: list[DescribingWorker] = []
    describer = a_describer(born)
    for _ in range(LEAVING_MAX):
        assert await describer.describe(SPEC) == Description()
    waiting = asyncio.ensure_future(describer.describe(SPEC))
    await settled()
    assert not waiting.done()
    born[1].cell.ended.set_result(None)
    assert await waiting == Description()
    closing = asyncio.ensure_future(describer.aclose())
    await settled()
    assert not closing.done()
    for worker in born:
        if not worker.cell.ended.done():
            worker.cell.ended.set_result(None)
    await closing


@pytest.mark.parametrize(("printed", "shown"), [(b"\n one\ntwo\n", "'one'"), (b" \n", "''")])
async def test_what_a_file_prints_while_it_is_loaded_is_a_remark(printed: bytes, shown: str) -> None:
    born: list[DescribingWorker] = []
    (problem,) = (await a_describer(born, printed).describe(SPEC)).problems
    assert problem.message == f"printed while it was loaded: {shown}; each worker does so again"
    assert problem.remark
