"""The life of a call: it waits, it runs, and it ends exactly once.

    accepted → waits for its tool as it was saved, hooks, a permission, a place and a worker → runs → ended

A call exists from the moment it is accepted. `Call.start` gives it its plan, when its tool is known; a call that has to
wait for none of these gets its worker at once. With a worker it has a `Run`, which fires the events from then on. `Call.end` is the
one place that assigns the ending, together with the state ENDED.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from toolcelld.calls import events
from toolcelld.calls.events import parts
from toolcelld.calls.functions import hooks
from toolcelld.calls.outcomes import outcome
from toolcelld.calls.outcomes.history import SHOWN_BYTES_MAX, CallSummary
from toolcelld.calls.outcomes.outcome import EMPTY_BODY, Kind, Outcome, Stop
from toolcelld.calls.permission import Permission
from toolcelld.calls.run import Run
from toolcelld.calls.shared_run import SharedRun
from toolcelld.errors import BugBarrier, Refusal, RefusalReason
from toolcelld.lifecycle import CALL, CallEvent, CallState, StateMachine
from toolcelld.policy.permit import secret_missing
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.worker import Worker

if TYPE_CHECKING:
    from toolcelld.calls.owner import Owner
    from toolcelld.calls.questions import Questions
    from toolcelld.calls.request import Plan, Request
    from toolcelld.pool.lease import Lease

logger = logging.getLogger(__name__)

BODY_BYTES_ALWAYS: Final = 64 * 1024
"""A result up to this size is always sent; a client that reads nothing can start no further calls."""
REFUSAL_CHARACTERS_MAX: Final = 2000
"""Of the message of a call that is not admitted, for operators."""
STORY_LINES_MAX: Final = 64
"""Enough for every event of a call and its questions."""
KEPT_BYTES: Final = 1024
"""Arguments up to this size stay in the request of a call; longer ones are freed when a worker has them."""
OUR_STAGES: Final = frozenset({"spawn", "setup"})
"""Stages of a worker's start whose failure is a fault of the daemon or the host; in other stages it is the file's."""
WAITING: Final = frozenset(
    {
        CallState.WAITING_TOOL,
        CallState.WAITING_HOOKS,
        CallState.WAITING_PERMISSION,
        CallState.WAITING_WORKER,
    }
)
SHOWN: Final = {
    **dict.fromkeys(WAITING, "waiting"),
    CallState.ABORTING: "aborting",
    CallState.ENDED: "ended",
}
"""The states that have a name in the contract; all others are "running"."""


class Call(StateMachine[CallState, CallEvent]):
    """One request to run one tool in one context.

    Args:
        request: what the client asks for, under the limits of its session.
        session: the session that it belongs to.
        digest: covers its tool and its arguments, for a repeated id.
    """

    table = CALL
    state = CallState.WAITING_TOOL

    def __init__(self, request: Request, session: Owner, digest: bytes = b"") -> None:
        self.id = request.call_id
        self.request = request if len(request.arguments) <= KEPT_BYTES else request._replace(arguments=b"")
        self.arguments_bytes = len(request.arguments)  # what counts for the session until the end
        self.arguments_shown = request.arguments[:SHOWN_BYTES_MAX]  # to operators
        self.session = session
        self.digest = digest
        self.accepted_at = time.time()
        self.accepted = time.monotonic()
        # The mutable state, in addition to that of the machine.
        self.plan: Plan | None = None  # None until its tool is known
        self.run: Run | None = None  # while a worker has it, and until its outcome is told
        self.ending: Outcome | Refusal | None = None  # there is one exactly when the state is ENDED
        self._result = b""  # the beginning of its body
        self._result_bytes = 0
        self.story: deque[tuple[float, str]] = deque([(self.accepted_at, "accepted")], STORY_LINES_MAX)
        self.seconds_left = request.limits.timeout_seconds  # of its own timeout; None without one
        self._done: asyncio.Future[None] | None = None  # see `done`
        self.arguments = request.arguments  # until a worker has them, or none will
        self._lease: Lease | None = None
        self._hooks: asyncio.Task[None] | None = None  # while they run, before the call
        self._permission: Permission | None = None  # where a rule asks a person first

    @property
    def done(self) -> asyncio.Future[None]:
        """Done when the call has ended; made when it is first read, as the end of few calls is awaited."""
        if self._done is None:
            self._done = asyncio.get_running_loop().create_future()
            if self.ended:
                self._done.set_result(None)
        return self._done

    @property
    def ended(self) -> bool:
        """Whether the call has an outcome or a refusal."""
        return self.state is CallState.ENDED

    @property
    def questions(self) -> tuple[Questions, ...]:
        """The questions that its tool and a permission rule have asked."""
        of_tool = self.run.questions if self.run is not None else None
        of_rule = self._permission.questions if self._permission is not None else None
        return tuple(questions for questions in (of_tool, of_rule) if questions is not None)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome; None before the end, and for a refused call."""
        return self.ending if isinstance(self.ending, Outcome) else None

    @property
    def shown_state(self) -> str:
        """Its state as the contract names it: "waiting", "running", "aborting" or "ended"."""
        run = self.run
        return SHOWN.get(self.state, "running" if run is None or run.wish is None else "aborting")

    def summary(self) -> CallSummary:
        """Return a snapshot for lists of calls."""
        request, plan, run = self.request, self.plan, self.run
        return CallSummary(
            self.id,
            self.session.id,
            request.tool,
            plan.tool.file.path if plan is not None else "",
            plan.tool.file.digest if plan is not None else "",
            SHOWN.get(self.state) or self.shown_state,  # without a call for one that has ended
            run.worker.id if run is not None else "",
            request.agent,
            request.agent_name,
            self.session.directory,
            request.session_id,
            request.message_id,
            self.accepted_at,
            self.ending if isinstance(self.ending, Outcome) else None,
            tuple(self.story),
            (self.ending.reason, self.ending.message) if isinstance(self.ending, Refusal) else ("", ""),
            self.arguments_shown,
            self.arguments_bytes,
            self._result,
            self._result_bytes,
            self.session.node,
            self.session.fence,
        )

    def refused(self, refusal: Refusal) -> CallSummary:
        """Return the summary of a call that is not admitted: it ends as it came, and only operators see it."""
        self.fire(CallEvent.REFUSED)
        self.ending = Refusal(refusal.reason, refusal.message[:REFUSAL_CHARACTERS_MAX])
        self.story[0] = (self.accepted_at, f"refused: {refusal.reason.lower()}")
        return self.summary()

    def note(self, text: str) -> None:
        """Add a line to the history that operators see."""
        self.story.append((time.time(), text))

    # Waiting

    def run_clock(self) -> None:
        """Start or continue its timer."""
        deadlines = self.session.deadlines
        if self.seconds_left is not None and self not in deadlines.due:
            due = deadlines.due[self] = asyncio.get_running_loop().time() + self.seconds_left
            if due < deadlines.earliest:
                deadlines.schedule(due)

    def stop_clock(self) -> None:
        """Stop its timer, keeping the time that has passed."""
        if (due := self.session.deadlines.due.pop(self, None)) is not None:
            self.seconds_left = max(0.0, due - asyncio.get_running_loop().time())

    def shorten(self, seconds: float | None) -> None:
        """Run for at most so many seconds from now on; None for as long as before."""
        if self in self.session.deadlines.due:
            self.stop_clock()
        if seconds is not None and (self.seconds_left is None or seconds < self.seconds_left):
            self.seconds_left = seconds
        self.run_clock()

    def start(self, plan: Plan) -> None:
        """Go on to what comes next: its hooks, a person who is asked, a worker.

        Run at once if a place and an idle worker are free; otherwise wait in the pool's queue.
        """
        self.plan = plan
        if plan.hooks and self.state is CallState.WAITING_TOOL:
            self.fire(CallEvent.HOOKED)
            self._hooks = self.session.services.tasks.create_task(
                self._run_hooks(plan), name=f"hooks before {self.id}"
            )
            return
        if plan.ask is not None and self.state is not CallState.WAITING_PERMISSION:
            self._ask(plan)
            return
        pool, places = self.session.services.pool, self.session.places
        try:
            if self.seconds_left is not None:
                self.run_clock()
            concurrency = plan.settings.concurrency
            if concurrency is None and (worker := pool.lease_now(plan.row, places)) is not None:
                self.run = (SharedRun if worker.several else Run)(self, plan, worker)
                self.run.begin()
                return
            self.fire(CallEvent.QUEUED)
            self._lease = pool.lease(
                plan.row, places, plan.limits.queue_seconds, tool=plan.tool.name, concurrency=concurrency
            )
            self._lease.granted.add_done_callback(self._leased)
        except Refusal as refusal:
            self.end(CallEvent.REFUSED, refusal)
        except Exception as error:  # noqa: BLE001  # a bug ends this call and no other
            self.fail(error)

    async def _run_hooks(self, plan: Plan) -> None:
        with BugBarrier(self.fail):
            self.stop_clock()
            found = await hooks.before(self, plan, self.arguments)
            self._hooks = None
            if isinstance(found, bytes):
                self.arguments = found
                self.start(plan)
            else:
                self.end(CallEvent.REFUSED, found)

    def _ask(self, plan: Plan) -> None:
        with BugBarrier(self.fail):
            self.fire(CallEvent.REFERRED)
            self.note(f"asks before it runs: {plan.ask}")
            self.stop_clock()
            self._permission = Permission(self.id, plan, self.session, self._allowed)
            self._permission.ask(self.arguments)

    def _allowed(self, ending: Outcome | Refusal | None) -> None:
        if self.state is not CallState.WAITING_PERMISSION:
            return  # the question was withdrawn
        assert self.plan is not None
        if ending is None:
            self.note("allowed")
            self.start(self.plan)
        else:
            self.end(CallEvent.REFUSED, ending)

    def refuse(self, refusal: Refusal) -> None:
        """Withdraw the question whether it may run, and refuse it."""
        self.end(CallEvent.REFUSED, refusal)

    def _leased(self, granted: asyncio.Future[Worker]) -> None:
        if self.state is not CallState.WAITING_WORKER:
            return
        with BugBarrier(self.fail):
            try:
                worker = granted.result()
            except StartFailed as failure:
                if failure.missing_module:
                    tasks = self.session.services.tasks
                    tasks.create_task(self._explain(failure), name=f"explain the start of {self.id}")
                else:
                    self.end(CallEvent.REFUSED, self._not_started(failure))
            except Refusal as failure:
                self.end(CallEvent.REFUSED, failure)
            else:
                assert self.plan is not None
                self.run = (SharedRun if worker.several else Run)(self, self.plan, worker)
                self.run.begin()

    async def _explain(self, failure: StartFailed) -> None:
        """End a call whose file could not import a module, with how to get it.

        It was described with that module: what was installed may be gone, or not be granted for this tool.
        """
        with BugBarrier(self.fail):
            assert self.plan is not None
            plan, services = self.plan, self.session.services
            remedy = await services.remedy(plan.tool.file, plan.spec, failure.missing_module, plan.tool)
            if self.state is CallState.WAITING_WORKER:
                self.end(CallEvent.REFUSED, self._not_started(failure, remedy))

    def _not_started(self, failure: StartFailed, remedy: str = "") -> Outcome | Refusal:
        """Return the ending of a call whose worker could not be started."""
        if failure.stage in OUR_STAGES:
            cause = "sandbox_setup_failed" if failure.stage == "setup" else "spawn"
            return outcome.not_started(cause, failure.message)
        if failure.stage == "secrets":
            return secret_missing(self.request.tool, failure.message)
        line = f" line {failure.line}" if failure.line else ""
        assert self.plan is not None
        message = f"{self.plan.tool.path}{line}: {failure.message}\n{remedy}".rstrip()
        return Refusal(RefusalReason.BROKEN_TOOL, message)

    def prepare(self, text: str) -> None:
        """Stop the clocks of a call that waits for the packages of its tool, and notify its client.

        Args:
            text: What is done; empty when it is done, which starts the clocks again.
        """
        if self.state not in (CallState.WAITING_TOOL, CallState.WAITING_WORKER):
            return  # its clocks stand still, or it runs
        lease = self._lease
        if not text:
            self.run_clock()
            if lease is not None:
                self.session.services.pool.go_on(lease)
            return
        self.note(text)
        self.stop_clock()
        if lease is not None:
            self.session.services.pool.hold(lease)
        self.session.tell(events.ProgressMade(0.0, None, text, call_id=self.id))

    def _withdraw(self) -> None:
        if self._lease is not None:
            self.session.services.pool.withdraw(self._lease)
            self._lease = None

    # The endings

    def stop(self, stop: Stop) -> bool:
        """Stop the call. Return False if it has ended or its worker has reported. The first cause counts."""
        if self.state not in WAITING:
            return self.run is not None and self.run.stop(stop)
        self.note(f"to be stopped: {stop.kind} ({stop.cause}), {stop.text}")
        self._withdraw()
        generation = self.plan.generation if self.plan is not None else 0
        self.end(CallEvent.ABORT, outcome.stopped_waiting(stop, generation))
        return True

    def timed_out(self) -> None:
        """Stop the call because its timeout has passed; a call whose tool is not known yet is refused."""
        self.seconds_left = None
        if self.state is CallState.WAITING_TOOL:
            self.session.on_waited_out(self)
        began = self.run.started if self.run is not None else self.accepted
        self.stop(Stop(Kind.TIMED_OUT, "timeout", f"{time.monotonic() - began:.1f} s"))

    def fail(self, error: Exception) -> None:
        """End this call because of a bug in the daemon."""
        logger.error("%r", self, exc_info=error)
        message = f"a bug in the daemon: {type(error).__name__}: {error}; {self!r}"[:1000]
        if self.run is not None:
            self.run.drop()
        else:
            self._withdraw()
        if not self.ended:
            self.end(CallEvent.FAILED, outcome.failed(message, ran=self.run is not None))

    def end(self, event: CallEvent, ending: Outcome | Refusal, body: bytes = EMPTY_BODY) -> None:
        """Assign the ending, here and nowhere else, together with the state ENDED; then send it.

        Args:
            event: what leads to ENDED.
            ending: the outcome, or the refusal of a call that no worker had.
            body: of the result, as JSON; it is sent and not kept.
        """
        sent: tuple[events.Event, ...]
        if isinstance(ending, Refusal):
            sent = (events.CallRefused(ending, call_id=self.id),)
            text = f"refused: {ending.reason.lower()}"
        else:
            if len(body) > BODY_BYTES_ALWAYS and not self.session.has_room(len(body)):
                ending, body = outcome.unread(ending), EMPTY_BODY
            sent = parts(self.id, ending, body)
            text = f"ended: {ending}" if ending.cause else f"ended: {ending.kind}"
        self.fire(event)
        self.ending = ending
        self._result, self._result_bytes = body[:SHOWN_BYTES_MAX], len(body)
        self.story.append((time.time(), text))
        self.arguments = b""
        self.session.deadlines.due.pop(self, None)
        if self._hooks is not None:
            self._hooks.cancel()
        if self._permission is not None:
            permission, self._permission = self._permission, None
            permission.close()
        if self._done is not None:
            self._done.set_result(None)
        self.session.on_ended(self, sent)
        # Let go of what holds this call, so that it needs no garbage collection; a busy daemon runs one rarely.
        if self.run is not None:
            self.run.free()
        self.run = self._lease = self._hooks = None
        if isinstance(ending, Refusal):
            ending.__traceback__ = None  # its frames hold the call

    def __repr__(self) -> str:
        story = ", ".join(self.events)
        return f"<Call {self.id} {self.request.tool} {self.state.upper()} after {story}>"
