"""How a call went: its moments, who wanted it stopped, what was left, and the outcome that this comes to.

`Call` walks the road and notes here what it meets, as it meets it; the seconds between two moments
are reckoned once, at the end. What the worker said and how its cell died is in the call's `OutputCollector`.
All of it together is evidence, and `outcome.judge` decides.
"""

from __future__ import annotations

import time
from typing import Final

from toolcelld.calls.collector import OutputCollector
from toolcelld.calls.outcome import EMPTY_BODY, Evidence, Facts, Outcome, Stop, judge
from toolcelld.calls.result import Result
from toolcelld.config.settings import Limits, Settings
from toolcelld.output.spill import Output

__all__ = ["NOTHING", "CallRecord"]

NOTHING: Final = Result(EMPTY_BODY, {}, None, 0, "")
"""Of a call that had no worker."""


class CallRecord:
    """The course of one call; a moment that has not come is zero."""

    __slots__ = (
        "accepted", "generation", "grace_seconds", "leftovers", "limits", "reported", "settings", "started", "state_lost",
        "stop", "stop_wished", "stopped", "tool", "worker_id",
    )  # fmt: skip

    def __init__(
        self, tool: str, settings: Settings, limits: Limits, *, generation: int, grace_seconds: float
    ) -> None:
        self.tool = tool
        self.settings = settings
        self.limits = limits
        self.generation = generation
        self.grace_seconds = grace_seconds
        # The mutable state: the moments, by the monotonic clock, and what was found at them.
        self.accepted = time.monotonic()
        self.started = 0.0
        self.worker_id = ""
        self.state_lost = False
        self.stop_wished = 0.0
        self.stop: Stop | None = None
        self.reported = 0.0
        self.leftovers = 0  # processes besides the worker when it reported; -1 when nobody could say
        self.stopped = 0.0  # the cell was seen empty, or given back

    @property
    def queue_seconds(self) -> float:
        """What it waited for a place and a worker; 0 for one that got none."""
        return self.started - self.accepted if self.started else 0.0

    def wish_to_stop(self, stop: Stop) -> None:
        """Somebody wants it gone."""
        self.stop = stop
        self.stop_wished = time.monotonic()

    def outcome(self, heard: OutputCollector, result: Result, logs: tuple[Output, ...]) -> Outcome:
        """What it comes to, now that it is over."""
        report, death, stop = heard.report, heard.death, self.stop
        run_seconds = time.monotonic() - self.started if self.started else 0.0
        stop_seconds = max(0.0, self.stopped - self.stop_wished) if stop is not None else 0.0
        leftovers = max(self.leftovers, 0)
        verdict = judge(
            Evidence(
                tool=self.tool,
                settings=self.settings,
                limits=self.limits,
                started=bool(self.worker_id),
                run_seconds=run_seconds,
                grace_seconds=self.grace_seconds,
                stop=stop,
                stop_seconds=stop_seconds,
                report_seconds=max(0.0, self.reported - self.stop_wished) if stop is not None else 0.0,
                report=report,
                text=result.text,
                death=death,
                leftovers=leftovers,
                broken=heard.broken,
            )
        )
        used = report or death  # who says what it used: the worker, else its keeper
        outputs = (*logs, result.output) if result.output is not None else logs
        return Outcome(
            kind=verdict.kind,
            cause=verdict.cause,
            message=verdict.message,
            body=result.body,
            metadata=heard.encoded_metadata(),
            output=result.output,
            ran=verdict.ran,
            stopped=verdict.stopped,
            side_effects_possible=verdict.side_effects_possible,
            facts=Facts(
                queue_seconds=self.queue_seconds,
                run_seconds=run_seconds,
                cpu_seconds=used.cpu_seconds if used is not None else 0.0,
                memory_peak_bytes=used.memory_peak_bytes if used is not None else 0,
                output_bytes=result.output_bytes,
                spilled_bytes=sum(output.kept_bytes for output in outputs) if outputs else 0,
                worker_id=self.worker_id,
                generation=self.generation,
                leftover_processes=leftovers,
                leftover_threads=report.threads if report is not None else 0,
                state_lost=self.state_lost,
                stop_seconds=stop_seconds,
                killed_processes=death.killed if death is not None and stop is not None else 0,
                logs=logs,
            ),
        )
