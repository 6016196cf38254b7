"""The run of a call in a worker that has others: the stop is this call's alone, and so is what is known of its end.

No server proves that it has stopped what a call was at. So its worker is replaced when a call of it is stopped: it gets no
further call, and its cell is ended when it is drained. The outcome waits for that at most for the grace, and is then told as
unconfirmed. With `on_abort = "keep"` the worker stays, and the outcome is unconfirmed when the worker has reported.

A server that does not answer within the grace is ended with all of its calls, each of which is told why.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

from toolcelld.calls.outcomes.outcome import Stop
from toolcelld.calls.run import Run
from toolcelld.cell.exit import CellExit
from toolcelld.config.resolution.settings import KEYS
from toolcelld.lifecycle import CallEvent, WorkerEvent, WorkerState
from toolcelld.pool.shared_worker import SharedWorker

if TYPE_CHECKING:
    from toolcelld.network.egress import Egress

T = TypeVar("T")

REFUSED_MAX: Final = 100
"""Hosts of one call; those that were asked for while it ran count, as nothing says which call asked."""


class SharedRun(Run):
    """A call that a worker has beside others."""

    @property
    def shared(self) -> SharedWorker:
        """Its worker."""
        assert isinstance(self.worker, SharedWorker)
        return self.worker

    @property
    def others(self) -> list[SharedRun]:
        """The runs of the other calls that the worker has."""
        return [run for run in self.worker.listeners if isinstance(run, SharedRun) and run is not self]

    # Stopping

    def _abort_in_worker(self, text: str) -> None:
        self.worker.cell.abort(self.sequence, text)
        if self.plan.spec.file.on_abort == "replace":
            self._pool.replace(self.shared)

    def _grace_seconds(self) -> float:
        # Also at the end of a lease: what does not answer in this time is ended with the calls of others.
        return self.plan.grace_seconds

    def _grace_over(self) -> None:
        text = f"did not answer for {self.plan.grace_seconds:g} s"
        self.call.note(f"its server {text}; its cell is being ended")
        self.shared.end_stuck(text, f"another call of it, {self.call.id}, did not stop")

    def end_cell(self, stop: Stop) -> None:
        """End the cell, which is over its limit, with all of its calls; a limit that the call lowered stops it alone."""
        key = KEYS[stop.cause]
        if getattr(self.plan.limits, key) != getattr(self.plan.settings.limits, key):
            return
        super().end_cell(stop)
        for run in self.others:
            run.call.stop(stop)

    # The end

    def _take_network(self, egress: Egress) -> None:
        """Take what the cell was refused, for this call and for those that run beside it."""
        refused, attempts = self.refused, self.attempts
        super()._take_network(egress)
        if self.refused or self.attempts:
            for run in self.others:
                run.refused = _joined(run.refused, self.refused)
                run.attempts = _joined(run.attempts, self.attempts)
        self.refused, self.attempts = _joined(refused, self.refused), _joined(attempts, self.attempts)

    def on_death(self, cell_exit: CellExit) -> None:
        self.ended_for = self.shared.ended_for
        super().on_death(cell_exit)

    async def _settle(self) -> None:
        """Leave the worker; the cell of a stopped call is empty when this returns, or the call is unconfirmed."""
        call, worker = self.call, self.shared
        if self.wish is None and worker.state is not WorkerState.DEAD:
            lost = self.broken or worker.cell.is_ending
            self._give_back(WorkerEvent.SPENT if lost else WorkerEvent.DONE)
            return
        if self.wish is not None and worker.state is not WorkerState.DEAD and not await self._is_proven():
            worker.unproven.append(call.id)
            self._give_back(WorkerEvent.DONE, unconfirmed=True)
        else:
            self.death = await asyncio.shield(worker.cell.ended)
            worker.leave(self.sequence)
            call.fire(CallEvent.LEFT)
            self._pool.give_place(call.session.places)
        if self.wish is not None:
            self.stopped = time.monotonic()

    async def _is_proven(self) -> bool:
        """Wait for the end of the cell, for as long as the grace; return whether it is ending or has ended."""
        worker = self.shared
        if not worker.replaced:
            return worker.cell.is_ending
        worker.report_stopped(self.sequence)
        left = self.wished + self.plan.grace_seconds - time.monotonic()
        if not worker.cell.is_ending:
            await asyncio.wait((worker.cell.ended,), timeout=max(0.0, left))
        return worker.cell.is_ending or worker.cell.ended.done()

    def _give_back(
        self, event: WorkerEvent, left: CallEvent = CallEvent.LEFT, *, unconfirmed: bool = False
    ) -> None:
        worker = self.shared
        worker.leave(self.sequence)
        self._pool.unbind(worker, self.plan.tool.name)
        super()._give_back(event, left, unconfirmed=unconfirmed)
        others = self.others
        worker.call_id = others[0].call.id if others else ""
        if worker.state is WorkerState.LAST:
            worker.end_if_drained()

    def _drop_worker(self) -> None:
        worker = self.shared
        worker.cell.abort(self.sequence, "a bug in the daemon")
        self._pool.replace(worker)
        worker.disown(self.sequence)


def _joined(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*first, *second)))[-REFUSED_MAX:]
