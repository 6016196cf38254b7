"""The record of one run: timestamps, the stop, leftovers, and the outcome that is built from them.

`Run` records here what happens, when it happens; the seconds between two moments are computed once, at the end.
The worker's report and the exit of its cell are in the run's `OutputCollector`. Together they are the evidence from
which `outcome.judge` derives the verdict.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from toolcell._printable import printable
from toolcelld.calls.outcomes.moved import Moved
from toolcelld.calls.outcomes.outcome import Evidence, Facts, Kind, Outcome, Stop, judge
from toolcelld.network.refusals import Refused
from toolcelld.output.result import Result
from toolcelld.output.spill import Output

if TYPE_CHECKING:
    from toolcelld.calls.collector import OutputCollector
    from toolcelld.calls.request import Plan

__all__ = ["CallRecord"]


class CallRecord:
    """The evidence of one run; a timestamp that is not reached is zero.

    Args:
        plan: the call's.
        accepted: when the call was accepted, by the monotonic clock.
        worker_id: the worker that has it now.
        state_lost: whether the session's own worker was lost since the call before.
    """

    # The mutable state that few calls change: moments by the monotonic clock, and what was found at them.
    stop: Stop | None = None
    stop_wished = 0.0
    leftovers = 0  # processes besides the worker when it reported; -1 when the keeper did not say
    refused: tuple[Refused, ...] = ()  # hosts
    moved_aside: tuple[Moved, ...] = ()  # protected places that have appeared
    stopped = 0.0  # the cell was seen empty, or given back

    def __init__(self, plan: Plan, accepted: float, worker_id: str, *, state_lost: bool) -> None:
        self.plan = plan
        self.worker_id = worker_id
        self.state_lost = state_lost
        self.started = time.monotonic()
        self.queue_seconds = self.started - accepted  # for its tool, a place and a worker
        self.reported = 0.0

    def wish_to_stop(self, stop: Stop) -> None:
        """Record the stop and its time."""
        self.stop = stop
        self.stop_wished = time.monotonic()

    def outcome(self, heard: OutputCollector, result: Result, logs: tuple[Output, ...]) -> Outcome:
        """Build the outcome of the run, which is over now.

        Args:
            heard: has the worker's report, and the exit of its cell.
            result: what it returned.
            logs: the printed streams that were cut.
        """
        plan, report, death, stop = self.plan, heard.report, heard.death, self.stop
        run_seconds = time.monotonic() - self.started
        stop_seconds = max(0.0, self.stopped - self.stop_wished) if stop is not None else 0.0
        leftovers = max(self.leftovers, 0)
        evidence = Evidence(
            tool=plan.tool.name,
            settings=plan.settings,
            limits=plan.limits,
            run_seconds=run_seconds,
            grace_seconds=plan.grace_seconds,
            stop=stop,
            stop_seconds=stop_seconds,
            report_seconds=max(0.0, self.reported - self.stop_wished) if stop is not None else 0.0,
            report=report,
            text=result.text,
            death=death,
            leftovers=leftovers,
            broken=heard.broken,
            policy=plan.spec.policy,
            refused=self.refused,
        )
        used = report or death  # the usage that was reported: by the worker, else by its keeper
        outputs = (*logs, result.output) if result.output is not None else logs
        facts = Facts(
            queue_seconds=self.queue_seconds,
            run_seconds=run_seconds,
            cpu_seconds=used.cpu_seconds if used is not None else 0.0,
            memory_peak_bytes=used.memory_peak_bytes if used is not None else 0,
            output_bytes=result.output_bytes,
            spilled_bytes=sum(output.kept_bytes for output in outputs) if outputs else 0,
            worker_id=self.worker_id,
            generation=plan.generation,
            leftover_processes=leftovers,
            leftover_threads=report.threads if report is not None else 0,
            state_lost=self.state_lost,
            stop_seconds=stop_seconds,
            killed_processes=death.killed if death is not None and stop is not None else 0,
            logs=logs,
            refused_hosts=tuple(dict.fromkeys(each.entry for each in self.refused)) if self.refused else (),
            moved_aside=tuple(map(str, self.moved_aside)) if self.moved_aside else (),
        )
        verdict = judge(evidence)
        notes = plan.notes
        if verdict.kind is Kind.INVALID_ARGUMENTS and plan.redefined:
            notes = (*notes, plan.redefined)
        if self.moved_aside:
            notes = (*notes, *(printable(moved.note) for moved in self.moved_aside))
        return Outcome(
            kind=verdict.kind,
            cause=verdict.cause,
            message=verdict.message,
            metadata=heard.encoded_metadata() if heard.metadata else b"",
            output=result.output,
            ran=verdict.ran,
            stopped=verdict.stopped,
            side_effects_possible=verdict.side_effects_possible,
            facts=facts,
            notes=notes,
        )
