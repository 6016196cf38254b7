"""The run of a call in its worker: timers, questions, the abort, and the return of the worker.

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
import time
from typing import TYPE_CHECKING, Final

from toolcell._context.ui import QUESTION
from toolcelld.calls.collector import OutputCollector
from toolcelld.calls.functions import hooks
from toolcelld.calls.outcomes.outcome import QUESTION_CAUSE, Kind, Outcome, Stop
from toolcelld.calls.outcomes.record import CallRecord
from toolcelld.calls.questions import Questions
from toolcelld.calls.timers import AbortEscalation, IdleTimer, PausableTimer
from toolcelld.config.resolution.settings import KEYS
from toolcelld.errors import BugBarrier
from toolcelld.lifecycle import CallEvent, CallState, WorkerEvent, WorkerState
from toolcelld.network.refusals import Refusals
from toolcelld.pool.worker import Worker
from toolcelld.protocol.messages import AnswerMessage, ReplyMessage

if TYPE_CHECKING:
    from toolcelld.calls.call import Call
    from toolcelld.calls.request import Plan

__all__ = ["Run"]

IN_WORKER: Final = frozenset({CallState.RUNNING, CallState.ASKING, CallState.ABORTING})
"""The states in which the worker has not reported."""
WITH_WORKER: Final = IN_WORKER | {CallState.SETTLING}
EXIT_SECONDS_MAX: Final = 0.5
"""How long the process of a stopped call has to exit by itself before it counts as left behind."""
STOPPED: Final = "the call is being stopped"
"""The answer to the open and the later questions of a call that is stopped."""
OVER: Final = "the call has ended"
"""The same for a call whose worker has reported or has died."""


class Run:
    """A call that a worker has.

    Args:
        call: the call, which waits.
        plan: its plan.
        worker: leased for it.
    """

    def __init__(self, call: Call, plan: Plan, worker: Worker) -> None:
        session = call.session
        self.call = call
        self.plan = plan
        self.worker = worker
        self.begun_at = time.time()
        self.record = CallRecord(
            plan,
            call.accepted,
            worker.id,
            state_lost=plan.spec.serial and session.take_state_lost(plan.spec),
        )
        self._pool = session.services.pool
        self._sequence = 0
        self._arguments = b""  # only for hooks
        self._grace: AbortEscalation | None = None
        limits = plan.limits
        # Only what the limits ask for: most calls have the timeout.
        self._timeout = (
            PausableTimer(limits.timeout_seconds, call.timed_out)
            if limits.timeout_seconds is not None
            else None
        )
        self.idle = IdleTimer(limits.idle_seconds, self._silent) if limits.idle_seconds is not None else None
        self.questions: Questions | None = None  # made for the first one
        self.collector = OutputCollector(self, worker.calls + 1)

    @property
    def has_worker(self) -> bool:
        """Whether the worker still belongs to this call."""
        return self.call.state in WITH_WORKER

    # The beginning

    def begin(self) -> None:
        """Send the call to its worker and start the timers."""
        call, session, worker = self.call, self.call.session, self.worker
        call.fire(CallEvent.LEASED)
        worker.call_id = call.id
        request = call.request
        context = request.context(session.id, session.directory, session.worktree)
        if request.traceparent:
            context["traceparent"] = request.traceparent
        if QUESTION in session.offered_services:
            context["has_ui"] = True
        arguments = call.take_arguments(worker.cell.redactor)
        if self.plan.hooks:
            self._arguments = arguments
        self._sequence = worker.begin(self.plan.tool.export, arguments, context, self.collector)
        # The worker is at it while the rest is done.
        self.run_clocks()
        call.story.append((self.begun_at, f"{worker.id} has it"))
        session.on_begun(call)

    # Stopping

    def stop(self, stop: Stop) -> bool:
        """Stop the tool. Return False if the worker has reported. The first cause counts."""
        call, worker = self.call, self.worker
        if call.state not in IN_WORKER:
            return False
        if call.state is CallState.ABORTING:
            return True
        self.record.wish_to_stop(stop)
        call.note(f"to be stopped: {stop.kind} ({stop.cause}), {stop.text}")
        if self.questions is not None:
            self.questions.close(STOPPED)
        call.fire(CallEvent.ABORT)
        worker.fire(WorkerEvent.ABORT)
        worker.cell.abort(self._sequence, stop.text)
        self._grace = AbortEscalation(self.plan.grace_seconds, worker.cell.resend_abort, self._grace_over)
        return True

    def _grace_over(self) -> None:
        assert self.record.stop is not None
        self.call.note(f"ignored it for {self.plan.grace_seconds:g} s; its cell is being ended")
        self.end_cell(self.record.stop)

    def end_cell(self, stop: Stop) -> None:
        """Kill the cell. A limit of the tool counts as a crash of the tool, a limit that the call lowered does not."""
        plan = self.plan
        key = KEYS.get(stop.cause, "") if stop.kind is Kind.LIMIT_EXCEEDED else ""
        if (
            key
            and self.collector.report is None
            and getattr(plan.limits, key) == getattr(plan.settings.limits, key)
        ):
            self.worker.end_for_limit(stop.cause)
        else:
            self.worker.cell.end()

    def _silent(self) -> None:
        seconds = self.plan.limits.idle_seconds or 0.0
        self.call.stop(Stop(Kind.TIMED_OUT, "idle", f"{seconds:g} s without a sign of life"))

    def run_clocks(self) -> None:
        """Start or continue the timers of the run."""
        if self._timeout is not None:
            self._timeout.run()
        if self.idle is not None:
            self.idle.run()

    def stop_clocks(self) -> None:
        """Pause the timers of the run."""
        if self._timeout is not None:
            self._timeout.pause()
        if self.idle is not None:
            self.idle.pause()

    # Questions

    def ask(self) -> Questions:
        """Return the questions of the call, for one that its tool asks or withdraws."""
        if self.questions is None:
            call = self.call
            self.questions = Questions(
                call.id,
                self.plan.tool.name,
                call.session,
                self._answer,
                self._questions_changed,
                lambda why: call.stop(Stop(Kind.TIMED_OUT, QUESTION_CAUSE, why)),
            )
            if self.record.stop is not None:
                self.questions.close(STOPPED)
        return self.questions

    def _answer(self, message: AnswerMessage | ReplyMessage, payload: bytes) -> None:
        if self.worker.state is not WorkerState.DEAD:
            self.worker.cell.channel.send(message, payload)

    def _questions_changed(self) -> None:
        """Pause the timers and free the session's place while a question is open."""
        call, questions = self.call, self.questions
        if questions is None:
            return
        if questions.open and call.state is CallState.RUNNING:
            call.fire(CallEvent.ASKED)
            if call.deadline is not None:
                call.deadline.pause()
            self.stop_clocks()
            self._pool.give_place(call.session.places)
        elif not questions.open and call.state is CallState.ASKING:
            call.session.places.take()
            call.fire(CallEvent.ANSWERED)
            if call.deadline is not None:
                call.deadline.run()
            self.run_clocks()

    # The end

    def over(self) -> None:
        """Handle the report of the worker or the exit of its cell; end the call at once if nothing has to be awaited."""
        call, report, state = self.call, self.collector.report, self.call.state
        if state not in IN_WORKER:
            return
        if state is CallState.ASKING:
            call.session.places.take()
        call.fire(CallEvent.LOST if report is None else CallEvent.REPORTED)
        if self.questions is not None:  # now, as the next call in this worker counts from 1 again
            self.questions.close(OVER)
        self.record.reported = time.monotonic()
        if self._grace is not None:
            self._grace.end()
        try:
            if self.worker.egress is not None:
                self._note_refused(self.worker.egress.refusals)
            if (
                self.record.stop is None
                and report is not None
                and self.worker.state is WorkerState.BUSY
                and not self.plan.spec.fresh
                and not (report.threads or self.collector.broken)
                and self.worker.cell.processes.is_clear()
                and (settled := self.collector.settle_now()) is not None
            ):
                if self.plan.spec.policy.writable:
                    self._look_at_project()
                self._give_back(WorkerEvent.DONE)
                self._judged(self.record.outcome(self.collector, settled, ()), settled.body)
            else:
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

    def _note_refused(self, refusals: Refusals) -> None:
        """Note the hosts that the tool asked for and may not reach; they were logged when it asked."""
        self.record.refused, count = refusals.take()
        for refused in self.record.refused:
            self.call.note(f"network: {refused.why}")
        if (more := count - len(self.record.refused)) > 0:
            text = f"network: {more} further attempt{'s' * (more > 1)} at hosts that are not granted"
            self.call.note(text)
            self.call.session.services.log(self.call.id, self.plan.tool.name, "log", "warning", text)

    async def _finish(self) -> None:
        """End a call whose worker, cell or output needs further work."""
        with BugBarrier(self.call.fail):
            await self._settle()
            if self.plan.spec.policy.writable:
                self._look_at_project()
            result, logs = await self.collector.settle(cancelled=self.record.stop is not None)
            self._judged(self.record.outcome(self.collector, result, logs), result.body)

    async def _settle(self) -> None:
        """Return or retire the worker; a cell that is not reused is empty when this returns."""
        call, worker, report, stop = self.call, self.worker, self.collector.report, self.record.stop
        # A stopped call has its cell ended in any case, but its own process, which exits, is nothing that it left behind.
        wait = self.plan.grace_seconds if stop is None else min(self.plan.grace_seconds, EXIT_SECONDS_MAX)
        gone = report is not None and worker.forks and await worker.is_gone(wait, end=stop is None)
        if (
            report is not None
            and self.collector.death is None
            and not (gone or worker.cell.processes.is_clear())
        ):
            self.record.leftovers = await worker.count_leftovers()
        clean = report is not None and not (self.record.leftovers or report.threads or self.collector.broken)
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
            self.collector.death = await asyncio.shield(worker.cell.ended)
        if call.state is CallState.SETTLING:
            call.fire(CallEvent.LEFT)
            self._pool.give_place(call.session.places)
        if stop is not None:
            self.record.stopped = time.monotonic()

    def _look_at_project(self) -> None:
        """Move aside what the call may have made in its project and programs outside would run or read."""
        moved = self.call.session.after_call(repaired=self.plan.spec.policy.repaired)
        if moved and (redactor := self.worker.cell.redactor) is not None:
            moved = tuple(each.redacted(redactor.text) for each in moved)
        self.record.moved_aside = moved

    def _give_back(self, event: WorkerEvent) -> None:
        self.worker.call_id = ""
        self.call.fire(CallEvent.LEFT)
        self._pool.give_back(self.worker, event, self.call.session.places)

    def drop(self) -> None:
        """Discard the run because of a bug: kill its cell and drop its output."""
        self.collector.discard()
        if self._grace is not None:
            self._grace.end()
        if self.questions is not None:
            self.questions.close(OVER)
        if not self.has_worker:
            return
        if self.call.state is not CallState.ASKING:
            self._pool.give_place(self.call.session.places)
        if self.worker.state is not WorkerState.DEAD:
            self.worker.listener = None
            self.worker.cell.end()

    def free(self) -> None:
        """Let go of what holds this run, so that an ended call needs no garbage collection. Nothing is used after it."""
        for timer in (self._timeout, self.idle, self._grace):
            if timer is not None:
                timer.end()
        self.questions = None
        if self.worker.listener is self.collector:  # and not that of the next call
            self.worker.listener = None
        del self.collector
