"""Describes tool files: runs each in a cell of its own that serves no call, to see its tools."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from toolcelld.catalog.describing.description import BrokenFile, Description, Rejected
from toolcelld.cell.exit import CellExit
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.startup import StartFailed, bug
from toolcelld.pool.worker import Worker

LEAVING_MAX: Final = 4
"""Cells that have described a file and are being ended, which takes long where others have the processors."""
PRINTED_CHARACTERS_MAX: Final = 80


class Describer:
    """Runs files to see their tools.

    Args:
        prefork_for: Returns the preforked cells for a cell's specification.
        load_seconds: How long a file may load.
        on_change: Called after every change of a worker's state.
    """

    def __init__(
        self,
        prefork_for: Callable[[CellSpec], PreforkedCells],
        *,
        load_seconds: float,
        on_change: Callable[[Worker], None] = lambda _: None,
        make_worker: Callable[[str, CellSpec, Callable[[Worker], None]], Worker] = Worker,
    ) -> None:
        self._prefork_for = prefork_for
        self.load_seconds = load_seconds
        self._on_change = on_change
        self._make_worker = make_worker
        self._ids = itertools.count(1)
        # The mutable state: the ends of cells that are not needed
        self._leaving: set[asyncio.Future[CellExit]] = set()

    async def describe(self, spec: CellSpec) -> Description:
        """Run a file in a cell of its own; the cell is being ended when this returns, or has ended where that failed."""
        while len(self._leaving) >= LEAVING_MAX:
            await asyncio.wait(list(self._leaving), return_when=asyncio.FIRST_COMPLETED)
        worker = self._make_worker(f"d-{next(self._ids)}", spec, self._on_change)
        try:
            description = await worker.start(
                self._prefork_for(spec), load_seconds=self.load_seconds, describe=True
            )
        except Exception as error:  # noqa: BLE001  # a bug of ours, which must not end the daemon
            failure = error if isinstance(error, StartFailed) else bug(worker, error)
            if worker.state is not WorkerState.DEAD:
                await worker.end()
            return Description(
                broken=BrokenFile(failure.stage, failure.message, failure.line, failure.missing_module)
            )
        worker.fire(WorkerEvent.RETIRE)
        worker.cell.end()
        if not (ended := worker.cell.ended).done():
            self._leaving.add(ended)
            ended.add_done_callback(self._leaving.discard)
        return _with_notice(description, worker.printed) if worker.printed else description

    async def aclose(self) -> None:
        """Wait until the last cell has ended."""
        if self._leaving:
            await asyncio.wait(list(self._leaving))


def _with_notice(description: Description, printed: bytes) -> Description:
    first, *_ = printed.decode(errors="replace").strip().splitlines() or [""]
    text = f"printed while it was loaded: {first[:PRINTED_CHARACTERS_MAX]!r}; each worker does so again"
    return replace(description, problems=(*description.problems, Rejected("", text, remark=True)))
