"""A call's whole life: it owns the clocks and the abort, and has exactly one ending.

    admitted → waits for a place and a worker → runs → [is stopped] → is judged → ended

`Call.start` sets out on that road, and it is walked once. Everything that wants the call gone comes through `Call.stop`: a
person, a clock, the end of the session. The first one counts. From there one ladder leads down:
the worker is asked (it raises in the tool), the grace passes, the cell is ended. What the worker
reports and how its cell died are evidence; `outcome.judge` decides. The last event of a stopped
call waits until its cell is empty.

Why a stop does not cancel anything but the waiting: the road has to be walked to its end, because only
there stands the proof.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Final, Protocol

from toolcell._units import format_seconds
from toolcelld.calls import events
from toolcelld.calls.bugs import Bugs
from toolcelld.calls.collector import Ear, OutputCollector
from toolcelld.calls.events import parts
from toolcelld.calls.history import CallSummary
from toolcelld.calls.outcome import EMPTY_BODY, Kind, Outcome, Stop
from toolcelld.calls.questions import Questions
from toolcelld.calls.record import NOTHING, CallRecord
from toolcelld.calls.request import Request
from toolcelld.calls.timers import AbortEscalation, IdleTimer, PausableTimer
from toolcelld.catalog.catalog import ToolInfo
from toolcelld.config.settings import KEYS, Settings, lower
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.lifecycle import CALL, CallEvent, CallState, Machine, WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.ruleset import secret_missing
from toolcelld.pool.pool import Pool
from toolcelld.pool.slots import Slots
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.worker import Invocation, Worker
from toolcelld.protocol.messages import AnswerMessage, CallContext, ReplyMessage

__all__ = ["Call", "Host"]

logger = logging.getLogger(__name__)

STORY_LINES_MAX: Final = 64
"""Enough for every event of a call and its questions."""
OUR_STAGES: Final = frozenset({"spawn", "setup"})
"""Stages of a worker's start that fail by our fault or the host's; the others are the file's."""


class Host(Ear, Protocol):
    """What a call needs of its session."""

    directory: str
    worktree: str
    slots: Slots

    def on_begun(self, call: Call) -> None:
        """A worker has the call."""
        ...

    def on_ended(self, call: Call, told: tuple[events.Event, ...]) -> None:
        """The call has its ending, and this is what the client is to be told of it."""
        ...

    def take_state_lost(self, spec: CellSpec) -> bool:
        """Whether the session's own worker for this was lost since the last call; says so once."""
        ...


class Call:
    """One request to run one tool in one context."""

    def __init__(
        self,
        request: Request,
        tool: ToolInfo,
        settings: Settings,
        spec: CellSpec,
        host: Host,
        *,
        generation: int,
        grace_seconds: float,
    ) -> None:
        self.request = request._replace(arguments=b"")
        self._arguments = request.arguments  # until a worker has them, or none will
        self.id = request.call_id
        self.tool = tool
        self.settings = settings
        self.limits = lower(settings.limits, request.limits)
        self.spec = spec
        self.host = host
        self.course = CallRecord(
            tool.name, settings, self.limits, generation=generation, grace_seconds=grace_seconds
        )
        self.machine = Machine(CALL, CallState.WAITING)
        self.ending: Outcome | Refusal | None = None  # there is one exactly when the state is ENDED
        self.accepted_at = time.time()
        self.begun_at = 0.0
        self.worker: Worker | None = None
        self.story: deque[tuple[float, str]] = deque([(self.accepted_at, "accepted")], STORY_LINES_MAX)
        self._loop = asyncio.get_running_loop()
        self._sequence = 0
        self._lease: asyncio.Task[Worker] | None = None
        self._over = False
        self._has_place = False
        self._given_back = False
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._grace: AbortEscalation | None = None
        self._paused = False
        self._deadline = PausableTimer(request.limits.timeout_seconds, self._timed_out)
        self._timeout = PausableTimer(self.limits.timeout_seconds, self._timed_out)
        self._idle = IdleTimer(self.limits.idle_seconds, self._silent)
        self.questions = Questions(self.id, tool.name, host, self._answer, self._questions_changed)
        self.intake = OutputCollector(
            self.id, tool.name, settings, self.limits, host,
            over=self._is_over, alive=self._idle.sign, questions=self.questions,
        )  # fmt: skip

    @property
    def state(self) -> CallState:
        """Where it is."""
        return self.machine.state

    @property
    def ended(self) -> bool:
        """Whether it has its ending."""
        return self.machine.state is CallState.ENDED

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, without the body of its result; None before that, and for a call that was refused."""
        return self.ending if isinstance(self.ending, Outcome) else None

    def summary(self) -> CallSummary:
        """The call as it is now, for lists."""
        request = self.request
        return CallSummary(
            call_id=self.id,
            session_id=self.host.id,
            tool=self.tool.name,
            path=self.tool.path,
            state=self.state,
            accepted_at=self.accepted_at,
            worker_id=self.worker.id if self.worker is not None else "",
            agent=request.agent,
            agent_name=request.agent_name,
            directory=self.host.directory,
            agent_session_id=request.session_id,
            message_id=request.message_id,
            outcome=self.outcome,
            story=tuple(self.story),
        )

    def note(self, text: str) -> None:
        """Write a line of what happened, for operators."""
        self.story.append((time.time(), text))

    # The road

    def start(self, pool: Pool, tasks: asyncio.TaskGroup) -> None:
        """Set out: at once where a place and a warm worker are free, else by a task that waits for them.

        A call that waits for nothing needs no task: it begins here and ends where its result arrives.
        """
        self._pool = pool
        self._tasks = tasks
        with Bugs(self._fail):
            self._deadline.run()
            if (worker := self._lease_now(pool)) is not None:
                self._begin(worker)
            else:
                tasks.create_task(self._queue(pool), name=f"queue {self.id}")

    def _lease_now(self, pool: Pool) -> Worker | None:
        if self.settings.concurrency is not None or not self.host.slots.take_now():
            return None
        worker = pool.lease_now(self.spec)
        if worker is None:
            self.host.slots.give()
        return worker

    async def _queue(self, pool: Pool) -> None:
        """Wait for a place and a worker; a stop ends the waiting, and the call."""
        with Bugs(self._fail):
            if self.ended:  # before there was anything to wait for
                return
            self._lease = self._loop.create_task(self._lease_slowly(pool))  # awaited on the next line
            try:
                worker = await self._lease
            except asyncio.CancelledError:
                if not self.ended:
                    self._lease.cancel()
                    raise
            except (Refusal, StartFailed) as failure:
                if not self.ended:
                    self._end(CallEvent.REFUSED, self._not_started(failure))
            else:
                if not self.ended:
                    self._begin(worker)
                else:  # in the moment between the worker's being granted and our knowing it
                    self.host.slots.give()
                    pool.give_back(worker, WorkerEvent.DONE)
            finally:
                self._lease = None

    async def _lease_slowly(self, pool: Pool) -> Worker:
        began = time.monotonic()
        most = self.limits.queue_seconds
        try:
            async with asyncio.timeout(most):
                await self.host.slots.take()
        except TimeoutError:
            raise Refusal(
                RefusalReason.BUSY,
                f"the session runs as many calls at once as it may, and none ended within {most:g} s.",
                retry_seconds=1,
                quota="[daemon] calls_per_session",
            ) from None
        try:
            return await pool.lease(
                self.spec,
                None if most is None else max(0.0, most - (time.monotonic() - began)),
                session=self.host.id,
                tool=self.tool.name,
                concurrency=self.settings.concurrency,
            )
        except BaseException:
            self.host.slots.give()
            raise

    def _begin(self, worker: Worker) -> None:
        self._has_place = True
        self.machine.fire(CallEvent.LEASED)
        self.worker = worker
        worker.call_id = self.id
        self.begun_at = time.time()
        self.course.started = time.monotonic()
        self.course.worker_id = worker.id
        self.course.state_lost = self.host.take_state_lost(self.spec)
        request, host = self.request, self.host
        context: CallContext = {
            "session_id": request.session_id or host.id,
            "message_id": request.message_id,
            "call_id": self.id,
            "agent": request.agent,
            "agent_name": request.agent_name or "main",
            "directory": host.directory,
            "worktree": host.worktree,
        }
        if request.traceparent:
            context["traceparent"] = request.traceparent
        self._sequence = worker.begin(Invocation(self.tool.export, self._arguments, context), self.intake)
        self._arguments = b""
        self.intake.listen(worker.cell, self._sequence)
        # The worker is at it while the rest is done.
        self._timeout.run()
        self._idle.run()
        self.note(f"{worker.id} has it")
        self.host.on_begun(self)

    def _is_over(self) -> None:
        """The worker reported, or its cell is gone: end the call, at once where nothing is to be waited for."""
        if self._over:
            return
        self._over = True
        self.course.reported = time.monotonic()
        if self._grace is not None:
            self._grace.cancel()
        with Bugs(self._fail):
            if (
                self.course.stop is None
                and self._is_clean()
                and (settled := self.intake.settle_now()) is not None
            ):
                self._give_back(WorkerEvent.DONE)
                self._end(CallEvent.REPORTED, self.course.outcome(self.intake, settled, ()))
            else:
                self._tasks.create_task(self._finish(), name=f"finish {self.id}")

    def _is_clean(self) -> bool:
        """Whether the worker may be used again, as far as can be seen without asking anybody."""
        report, worker = self.intake.report, self.worker
        return (
            report is not None
            and worker is not None
            and worker.state is WorkerState.BUSY
            and self.settings.isolation != "call"
            and not (report.threads or self.intake.broken)
            and worker.cell.is_clear()
        )

    async def _finish(self) -> None:
        """The end of a call that leaves something to be done."""
        with Bugs(self._fail):
            await self._settle()
            result, logs = await self.intake.settle(cancelled=self.course.stop is not None)
            event = CallEvent.LOST if self.intake.report is None else CallEvent.REPORTED
            self._end(event, self.course.outcome(self.intake, result, logs))

    async def _settle(self) -> None:
        """Decide about the worker; a cell that will not be used again is empty when this returns."""
        worker = self.worker
        assert worker is not None
        report = self.intake.report
        if report is not None and self.intake.death is None and not worker.cell.is_clear():
            self.course.leftovers = await worker.survey()
        clean = report is not None and not (self.course.leftovers or report.threads or self.intake.broken)
        if worker.state is WorkerState.DEAD:
            worker.release()
        elif self.course.stop is None:
            self._give_back(
                WorkerEvent.DONE if clean and self.settings.isolation != "call" else WorkerEvent.SPENT
            )
        elif clean and self.spec.serial:
            self._give_back(WorkerEvent.SETTLED)
        else:
            worker.cell.end()
        if not self._given_back or worker.state in (WorkerState.STOPPING, WorkerState.DEAD):
            self.intake.death = await asyncio.shield(worker.cell.ended)
        self._leave_place()
        if self.course.stop is not None:
            self.course.stopped = time.monotonic()

    def _give_back(self, event: WorkerEvent) -> None:
        assert self.worker is not None
        self.worker.call_id = ""
        self._given_back = True
        self._leave_place()
        self._pool.give_back(self.worker, event)

    def _leave_place(self) -> None:
        """Give the place in the session to whoever waits for it."""
        if self._has_place:
            self._has_place = False
            self.host.slots.give()

    def _fail(self, error: Exception) -> None:
        """A bug in the daemon ends this call, with its story, and no other."""
        logger.error("%r", self, exc_info=error)
        self.intake.discard()
        self._leave_place()
        if self.worker is not None and not self._given_back and self.worker.state is not WorkerState.DEAD:
            self.worker.release()
            self.worker.cell.end()
        if not self.ended:
            ran = self.worker is not None
            message = f"a bug in the daemon: {type(error).__name__}: {error}; {self!r}"[:1000]
            self._end(
                CallEvent.FAILED,
                Outcome(Kind.INTERNAL, "failure", message, EMPTY_BODY, ran=ran, side_effects_possible=ran),
            )

    # The ways to stop

    def stop(self, stop: Stop) -> bool:
        """Have the call stopped; False when it has ended, or is about to. The first wish counts."""
        if self.ended or self._over:
            return False
        if self.course.stop is not None:
            return True
        self.course.wish_to_stop(stop)
        self.note(f"to be stopped: {stop.kind} ({stop.cause}), {stop.text}")
        self.questions.close("the call is being stopped")
        if self.machine.state is CallState.WAITING:
            self._end(CallEvent.ABORT, self.course.outcome(self.intake, NOTHING, ()))
            if self._lease is not None:
                self._lease.cancel()
            return True
        self.machine.fire(CallEvent.ABORT)
        worker = self.worker
        assert worker is not None
        worker.fire(WorkerEvent.ABORT)
        worker.cell.abort(self._sequence, stop.text)
        self._grace = AbortEscalation(self.course.grace_seconds, worker.cell.remind, self._grace_over)
        return True

    def _grace_over(self) -> None:
        assert self.course.stop is not None
        self.note(f"ignored it for {self.course.grace_seconds:g} s; its cell is being ended")
        self.end_cell(self.course.stop)

    def end_cell(self, stop: Stop) -> None:
        """End its cell for that; the tool is to blame for a limit of its own, and not for one that the call lowered."""
        assert self.worker is not None
        key = KEYS.get(stop.cause, "") if stop.kind is Kind.LIMIT_EXCEEDED else ""
        if (
            key
            and self.intake.report is None
            and getattr(self.limits, key) == getattr(self.settings.limits, key)
        ):
            self.worker.end_over(stop.cause)
        else:
            self.worker.cell.end()

    def _timed_out(self) -> None:
        seconds = time.monotonic() - (self.course.started or self.course.accepted)
        self.stop(Stop(Kind.TIMED_OUT, "timeout", format_seconds(seconds)))

    def _silent(self) -> None:
        seconds = self.limits.idle_seconds or 0.0
        self.stop(Stop(Kind.TIMED_OUT, "idle", f"{seconds:g} s without a sign of life"))

    def _stop_clocks(self) -> None:
        self._deadline.pause()
        self._timeout.pause()
        self._idle.pause()

    # Questions

    def _answer(self, answer: AnswerMessage | ReplyMessage, payload: bytes) -> None:
        if self.worker is not None and self.worker.state is not WorkerState.DEAD:
            self.worker.cell.wire.send(answer, payload)

    def _questions_changed(self) -> None:
        """No clock runs while a question is open, and the place is free for others."""
        waits = self.questions.open > 0
        if waits == self._paused or self._over:
            return
        self._paused = waits
        if waits:
            self._stop_clocks()
            self._leave_place()
        else:
            self.host.slots.take_back()
            self._has_place = True
            for clock in (self._deadline, self._timeout, self._idle):
                clock.run()

    # The ending

    def _not_started(self, failure: Refusal | StartFailed) -> Outcome | Refusal:
        """The ending of a call that no worker will have."""
        if isinstance(failure, Refusal):
            return failure
        if failure.stage in OUR_STAGES:
            cause = "sandbox_setup_failed" if failure.stage == "setup" else "spawn"
            return Outcome(Kind.INTERNAL, cause, failure.message, EMPTY_BODY)
        if failure.stage == "secrets":
            return secret_missing(self.tool.name, failure.message)
        line = f" line {failure.line}" if failure.line else ""
        return Refusal(RefusalReason.BROKEN_TOOL, f"{self.tool.path}{line}: {failure.message}")

    def _end(self, event: CallEvent, ending: Outcome | Refusal) -> None:
        """Assign the ending, here and nowhere else, together with the state ENDED; then tell it."""
        told: tuple[events.Event, ...]
        if isinstance(ending, Refusal):
            told = (events.Refused(ending, call_id=self.id),)
            text = f"refused: {ending.reason}"
        else:
            told = first, *_ = parts(self.id, ending)
            ending = first.outcome  # without the body, which is told and not kept
            text = f"ended: {ending.kind}" + (f" ({ending.cause})" if ending.cause else "")
        self.machine.fire(event)
        self.ending = ending
        self.note(text)
        self._arguments = b""
        self._stop_clocks()
        self.done.set_result(None)
        self.host.on_ended(self, told)

    def __repr__(self) -> str:
        return f"<Call {self.id} {self.tool.name} {self.state.upper()} after {', '.join(self.machine.story)}>"
