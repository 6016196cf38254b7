"""The run of a call in its worker: what the worker sends, the abort, the evidence, and the return of the worker.

    RUNNING ⇄ ASKING → [ABORTING] → SETTLING → CLOSING → the outcome

The state is the call's, and `Run` fires the events from RUNNING to the end. `Call.stop` is called by clients, timers,
limits and the end of the session; the first cause counts. It escalates: the worker is signalled (an exception in the
tool), the grace passes, the cell is killed. The report of the worker and the exit of its cell are the evidence for the
outcome.

A stop cancels nothing: the run continues to its end, because only then is the cell known to be empty. The last event
of a stopped call waits for that.

RUNNING, ABORTING and SETTLING have a place in the session; `Pool.give_back` and `Pool.give_place` return it.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Final

from toolcell._context.ui import QUESTION
from toolcell._printable import printable
from toolcelld.calls.asking import OVER, STOPPED, questions_of
from toolcelld.calls.collector import OutputCollector
from toolcelld.calls.evidence import verdict_of
from toolcelld.calls.functions import hooks
from toolcelld.calls.outcomes.moved import Moved
from toolcelld.calls.outcomes.outcome import LEASE_EXPIRED, WELL, Facts, Kind, Outcome, Report, Stop
from toolcelld.calls.timers import UNIT_BYTES, AbortEscalation, IdleTimer
from toolcelld.cell.exit import CellExit
from toolcelld.cell.stdio import Source
from toolcelld.config.resolution.settings import KEYS
from toolcelld.errors import BugBarrier
from toolcelld.lifecycle import CallEvent, CallState, WorkerEvent, WorkerState
from toolcelld.network.attempts import Attempt
from toolcelld.network.refusals import Refusals, RefusedHost
from toolcelld.output.result import Result, short_result
from toolcelld.output.spill import KeptOutput
from toolcelld.pool.worker import Worker
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import ResultMessage, from_worker

if TYPE_CHECKING:
    from toolcelld.calls.call import Call
    from toolcelld.calls.questions import Questions
    from toolcelld.calls.request import Plan
    from toolcelld.network.egress import Egress

IN_WORKER: Final = frozenset({CallState.RUNNING, CallState.ASKING, CallState.ABORTING})
"""The states in which the worker has not reported."""
WITH_WORKER: Final = IN_WORKER | {CallState.SETTLING}
LEASE_GRACE_SECONDS: Final = 0.25
"""At the end of a lease: enough for a tool that obeys, and little for who counts on the end."""
EXIT_SECONDS_MAX: Final = 0.5
"""How long the process of a stopped call has to exit by itself before it counts as left behind."""
RESULT_TYPES: Final = frozenset({"result", "chunk"})
"""Messages whose number and size are bounded for each call."""
SHOWN_BYTES_MAX: Final = 1024
"""Of the arguments, for operators."""


CHANGED: Final = "The process was replaced after the call, which has changed for good its"


class Run:
    """A call that a worker has: the `CallListener` of the worker, and the evidence of which the outcome is judged."""

    # Defaults of the class, as most calls send a short result and nothing else; a moment that is not reached is zero.
    report: Report | None = None
    death: CellExit | None = None
    broken = ""  # what the worker sent that is no frame
    has_reported = False  # whether the result is complete, or has begun to come
    wish: Stop | None = None  # why it is to stop
    wished = 0.0
    reported = 0.0
    stopped = 0.0  # the cell was seen empty, or given back
    leftovers = 0  # processes besides the worker when it reported; -1 when the keeper did not say
    refused: tuple[RefusedHost, ...] = ()  # hosts
    attempts: tuple[Attempt, ...] = ()  # at hosts that are granted
    remedy = ""  # how to get the module that it could not import
    ended_for = ""  # why its cell was ended though it had not been stopped
    moved_aside: tuple[Moved, ...] = ()  # protected places that have appeared
    idle: IdleTimer | None = None
    questions: Questions | None = None  # made for the first one
    _collector: OutputCollector | None = None  # made for what is no short result
    _short: Result | None = None
    _grace: AbortEscalation | None = None
    _arguments = b""  # only for hooks

    def __init__(self, call: Call, plan: Plan, worker: Worker) -> None:
        self.call = call
        self.plan = plan
        self.worker = worker
        self.begun_at = time.time()
        self.started = time.monotonic()
        self.queue_seconds = self.started - call.accepted  # for its tool, a place and a worker
        spec = worker.spec
        self.state_lost = spec.serial and call.session.take_state_lost(spec)
        self._pool = call.session.services.pool
        self.sequence = worker.calls + 1
        if plan.limits.idle_seconds is not None:
            self.idle = IdleTimer(plan.limits.idle_seconds, self._silent)

    @property
    def has_worker(self) -> bool:
        """Whether the worker still belongs to this call."""
        return self.call.state in WITH_WORKER

    @property
    def printed_bytes(self) -> int:
        """What its tool has printed so far."""
        return self._collector.printed_bytes if self._collector is not None else 0

    # The beginning

    def begin(self) -> None:
        """Send the call to its worker and start the timers."""
        call, plan, worker = self.call, self.plan, self.worker
        session, request, channel = call.session, call.request, worker.cell.channel
        call.fire(CallEvent.LEASED)
        worker.call_id, worker.tool, worker.session_id = call.id, call.request.tool, call.session.id
        context = request.context(session.id, session.directory, session.worktree)
        if request.traceparent:
            context["traceparent"] = request.traceparent
        if QUESTION in session.offered_services:
            context["has_ui"] = True
        arguments, call.arguments = call.arguments, b""  # the call keeps no more of them than operators see
        shown = arguments if channel.redactor is None else channel.redactor.redacted(arguments)
        call.arguments_shown = shown[:SHOWN_BYTES_MAX]
        if plan.hooks:
            self._arguments = arguments
        worker.begin(plan.tool.export, arguments, context, self)
        # The worker is at it while the rest is done.
        call.shorten(plan.limits.timeout_seconds)
        if self.idle is not None:
            self.idle.run()
        call.story.append((self.begun_at, f"{worker.id} has it"))
        session.on_begun(call)

    # From the worker

    def on_frame(self, frame: Frame) -> None:
        header, payload = frame
        kind = header["type"]
        stale = self.report is not None or (kind != "chunk" and header.get("seq") != self.sequence)
        if stale or kind not in RESULT_TYPES:
            self.collector().spend(1 + len(payload) // UNIT_BYTES)
        if stale:
            return  # about a call that is over; it may be anything
        if self.idle is not None:
            self.idle.sign()
        try:
            message = from_worker(header)
            if not isinstance(message, ResultMessage):
                self.collector().take(message, payload)
                return
            if self.has_reported:
                raise FrameError("a second result")
            self.has_reported = True
            self._short = short_result(message, payload, self.plan.limits)
            if self._short is not None:
                self.report_of(message)
            else:
                self.collector().begin(message, payload)
        except FrameError as error:
            self.worker.cell.channel.fail(error)

    def report_of(self, message: ResultMessage) -> None:
        """Take the report of a result that is complete. Output that was printed before it is still in the pipes."""
        self.worker.cell.stdio.drain()
        self.report = Report(
            message.kind,
            message.ran,
            message.cpu,
            message.rss,
            message.threads,
            message.limit or "",
            self._named(message.unreached),
            message.changed or (),
            message.missing or "",
        )
        self.over()

    def _named(self, unreached: str | None) -> str | None:
        """The host that was not reached by its name, where the worker knows an address of the cell's own network."""
        if unreached is None or (egress := self.worker.egress) is None:
            return unreached
        return egress.named(unreached)

    def on_output(self, source: Source, data: bytes) -> bool:
        if self.idle is not None:
            self.idle.sign()
        return self.collector().on_output(source, data)

    def on_broken(self, error: FrameError) -> None:
        self.broken = self.broken or str(error)[:200]

    def on_refused(self, refused: RefusedHost) -> None:
        self.collector().tell_log("log", "warning", f"network: {refused.why}")

    def on_death(self, cell_exit: CellExit) -> None:
        self.death = cell_exit
        if self.worker.certificate:
            self.call.note(f"{self.worker.id} died of {self.worker.certificate}")
        self.over()

    def collector(self) -> OutputCollector:
        """Return the collector of what is no short result."""
        if self._collector is None:
            self._collector = OutputCollector(self)
        return self._collector

    # Stopping

    def stop(self, stop: Stop) -> bool:
        """Stop the tool. Return False if the worker has reported. The first cause counts."""
        call = self.call
        if call.state not in IN_WORKER:
            return False
        if call.state is CallState.ABORTING:
            return True
        self.wish, self.wished = stop, time.monotonic()
        call.note(f"to be stopped: {stop.kind} ({stop.cause}), {stop.text}")
        if self.questions is not None:
            self.questions.close(STOPPED)
        call.fire(CallEvent.ABORT)
        self._abort_in_worker(stop.text)
        self._grace = AbortEscalation(self._grace_seconds(), self.worker.cell.resend_abort, self._grace_over)
        return True

    def _abort_in_worker(self, text: str) -> None:
        self.worker.fire(WorkerEvent.ABORT)
        self.worker.cell.abort(self.sequence, text)

    def _grace_seconds(self) -> float:
        assert self.wish is not None
        most = LEASE_GRACE_SECONDS if self.wish.cause == LEASE_EXPIRED else math.inf
        return min(self.plan.grace_seconds, most)

    def _grace_over(self) -> None:
        assert self.wish is not None
        text = f"ignored it for {self._grace_seconds():g} s"
        self.call.note(f"{text}; its cell is being ended")
        if self.wish.kind is Kind.ABORTED and self.wish.cause != LEASE_EXPIRED:
            self.worker.end_stuck(text)
        else:
            self.end_cell(self.wish)

    def end_cell(self, stop: Stop) -> None:
        """Kill the cell. A limit of the tool counts as a crash of the tool, a limit that the call lowered does not."""
        plan = self.plan
        key = KEYS.get(stop.cause, "") if stop.kind is Kind.LIMIT_EXCEEDED else ""
        if key and self.report is None and getattr(plan.limits, key) == getattr(plan.settings.limits, key):
            self.worker.end_for_limit(stop.cause, stop.text)
        else:
            self.worker.cell.end()

    def _silent(self) -> None:
        seconds = self.plan.limits.idle_seconds or 0.0
        self.call.stop(Stop(Kind.TIMED_OUT, "idle", f"{seconds:g} s without a sign of life"))

    # Questions

    def ask(self) -> Questions:
        """Return the questions of the call, for one that its tool asks or withdraws."""
        if self.questions is None:
            self.questions = questions_of(self)
        return self.questions

    # The end

    def over(self) -> None:
        """Handle the report of the worker or the exit of its cell; end the call at once if nothing has to be awaited."""
        call, plan, worker, report = self.call, self.plan, self.worker, self.report
        state = call.state
        if state not in IN_WORKER:
            return
        self.reported = time.monotonic()
        try:
            if worker.egress is not None:
                self._take_network(worker.egress)
            if (
                state is CallState.RUNNING
                and self.questions is None
                and report is not None
                and worker.state is WorkerState.BUSY
                and not worker.spec.fresh
                and not (report.threads or report.changed or report.missing or self.broken)
                and worker.cell.processes.is_clear()
                and (
                    settled := self._short
                    if self._collector is None
                    else self._collector.settle_now(self._short)
                )
                is not None
            ):
                if worker.spec.policy.writable and call.session.project_changed():
                    self._look_at_project()
                self._give_back(WorkerEvent.DONE, CallEvent.DONE)
                outcome = self._outcome(settled, ())
                if plan.hooks:
                    self._judged(outcome, settled.body)
                else:
                    call.end(CallEvent.JUDGED, outcome, settled.body)
                return
            if state is CallState.ASKING:
                call.session.places.take()
            call.fire(CallEvent.LOST if report is None else CallEvent.REPORTED)
            if self.questions is not None:  # now, as the next call in this worker counts from 1 again
                self.questions.close(OVER)
            if self._grace is not None:
                self._grace.end()
            call.session.services.tasks.create_task(self._finish(), name=f"finish {call.id}")
        except Exception as error:  # noqa: BLE001  # a bug ends this call and no other
            call.fail(error)

    def _judged(self, outcome: Outcome, body: bytes) -> None:
        """End the call, after its hooks if it has any."""
        if self.plan.hooks:
            call = self.call
            call.session.services.tasks.create_task(
                self._run_hooks(outcome, body), name=f"hooks after {call.id}"
            )
        else:
            self.call.end(CallEvent.JUDGED, outcome, body)

    async def _run_hooks(self, outcome: Outcome, body: bytes) -> None:
        with BugBarrier(self.call.fail):
            self.call.end(
                CallEvent.JUDGED, *await hooks.after(self.call, self.plan, self._arguments, outcome, body)
            )

    def _take_network(self, egress: Egress) -> None:
        """Take what the tool has asked for and was refused, and what it tried."""
        self._note_refused(egress.refusals)
        self.attempts = egress.attempts.take()

    def _note_refused(self, refusals: Refusals) -> None:
        """Note the hosts that the tool asked for and may not reach; they were logged when it asked."""
        self.refused, count = refusals.take()
        for refused in self.refused:
            self.call.note(f"network: {refused.why}")
        if (more := count - len(self.refused)) > 0:
            text = f"network: {more} further attempt{'s' * (more > 1)} at hosts that are not granted"
            self.call.note(text)
            self.call.session.services.log(self.call.id, self.plan.tool.name, "log", "warning", text)

    async def _finish(self) -> None:
        """End a call whose worker, cell or output needs further work."""
        with BugBarrier(self.call.fail):
            await self._settle()
            if self.plan.spec.policy.writable:
                self._look_at_project()
            cancelled = self.wish is not None
            if self.report is not None and self.report.missing and not cancelled:
                services, tool = self.call.session.services, self.plan.tool
                self.remedy = await services.remedy(tool.file, self.plan.spec, self.report.missing, tool)
            result, logs = await self.collector().settle(self._short, cancelled=cancelled)
            self._judged(self._outcome(result, logs), result.body)

    async def _settle(self) -> None:
        """Return or retire the worker; a cell that is not reused is empty when this returns."""
        call, worker, report, stop = self.call, self.worker, self.report, self.wish
        # A stopped call has its cell ended in any case, but its own process, which exits, is nothing that it left behind.
        wait = self.plan.grace_seconds if stop is None else min(self.plan.grace_seconds, EXIT_SECONDS_MAX)
        gone = report is not None and worker.forks and await worker.is_gone(wait, end=stop is None)
        if report is not None and self.death is None and not (gone or worker.cell.processes.is_clear()):
            self.leftovers = await worker.count_leftovers()
        clean = report is not None and not (self.leftovers or report.threads or report.changed or self.broken)
        if worker.state is WorkerState.DEAD:
            worker.listener = None
        elif stop is None:
            reusable = clean and (gone or not self.plan.spec.fresh)
            self._give_back(WorkerEvent.DONE if reusable else WorkerEvent.SPENT)
        elif clean and self.plan.spec.serial:
            self._give_back(WorkerEvent.SETTLED)
        else:
            worker.cell.end()
        if call.state is CallState.SETTLING or worker.state in (WorkerState.STOPPING, WorkerState.DEAD):
            self.death = await asyncio.shield(worker.cell.ended)
        if call.state is CallState.SETTLING:
            call.fire(CallEvent.LEFT)
            self._pool.give_place(call.session.places)
        if stop is not None:
            self.stopped = time.monotonic()

    def _look_at_project(self) -> None:
        """Move aside what the call may have made in its project and programs outside would run or read."""
        moved = self.call.session.after_call(repaired=self.plan.spec.policy.repaired)
        if moved and (redactor := self.worker.cell.redactor) is not None:
            moved = tuple(each.redacted(redactor.text) for each in moved)
        self.moved_aside = moved

    def _give_back(
        self, event: WorkerEvent, left: CallEvent = CallEvent.LEFT, *, unconfirmed: bool = False
    ) -> None:
        self.worker.call_id = ""
        self.call.fire(left)
        self._pool.give_back(self.worker, event, self.call.session.places, unconfirmed=unconfirmed)

    def _outcome(self, result: Result, logs: tuple[KeptOutput, ...]) -> Outcome:
        """Return the outcome of the run, which is over now.

        Args:
            logs: the printed streams that were cut.
        """
        plan, report, death, stop = self.plan, self.report, self.death, self.wish
        run_seconds = time.monotonic() - self.started
        stop_seconds = max(0.0, self.stopped - self.wished) if stop is not None else 0.0
        verdict = WELL
        if (
            report is None
            or report.kind != "ok"
            or not report.ran
            or stop is not None
            or death is not None
            or self.broken
        ):
            verdict = verdict_of(self, result.text, run_seconds, stop_seconds)
        used = report or death  # the usage that was reported: by the worker, else by its keeper
        outputs = (*logs, result.output) if result.output is not None else logs
        facts = Facts(  # by position: names would take three times as long, in each call
            self.queue_seconds,
            run_seconds,
            used.cpu_seconds if used is not None else 0.0,
            used.memory_peak_bytes if used is not None else 0,
            result.output_bytes,
            sum(output.kept_bytes for output in outputs) if outputs else 0,
            self.worker.id,
            plan.generation,
            max(self.leftovers, 0),
            report.threads if report is not None else 0,
            self.state_lost,
            stop_seconds,
            death.killed if death is not None and stop is not None else 0,
            logs,
            tuple(dict.fromkeys(each.entry for each in self.refused)) if self.refused else (),
            tuple(map(str, self.moved_aside)) if self.moved_aside else (),
            self.call.session.node,
            self.call.session.fence,
        )
        notes = plan.notes
        if verdict.kind is Kind.INVALID_ARGUMENTS and plan.redefined:
            notes = (*notes, plan.redefined)
        if report is not None and report.changed:
            notes = (*notes, f"{CHANGED} {printable(' and '.join(report.changed))}.")
        if self.moved_aside:
            notes = (*notes, *(printable(moved.note) for moved in self.moved_aside))
        return Outcome(
            verdict.kind,
            verdict.cause,
            verdict.message,
            self._collector.encoded_metadata if self._collector is not None else b"",
            result.output,
            verdict.ran,
            verdict.stopped,
            verdict.side_effects_possible,
            facts,
            notes,
        )

    def drop(self) -> None:
        """Discard the run because of a bug: drop its output, and kill its cell or have the worker of several calls replaced."""
        self._discard()
        if not self.has_worker:
            return
        if self.call.state is not CallState.ASKING:
            self._pool.give_place(self.call.session.places)
        if self.worker.state is not WorkerState.DEAD:
            self._drop_worker()

    def _drop_worker(self) -> None:
        self.worker.listener = None
        self.worker.cell.end()

    def _discard(self) -> None:
        if self._collector is not None:
            self._collector.discard()
        if self._grace is not None:
            self._grace.end()
        if self.questions is not None:
            self.questions.close(OVER)

    def free(self) -> None:
        """Let go of what holds this run, so that an ended call needs no garbage collection. Nothing is used after it."""
        for timer in (self.idle, self._grace):
            if timer is not None:
                timer.end()
        self.questions = self._collector = None
        if self.worker.listener is self:  # and not that of the next call
            self.worker.listener = None
