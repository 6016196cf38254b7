"""A client session: its directory, its catalog and its running calls.

Calls belong to the session and not to a stream. A stream that breaks detaches the session; who
shows the resume token within the linger takes it over and finds every call again. After the
linger, or when the client says so, or when the daemon drains, the session closes: it refuses
new calls, has the running ones stopped, and is gone when the last of them has ended.

`Session.admit` is the only way in for a call.

Everything here changes the calls of one session, and the order of these changes is what lets each call end once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import Generator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolcelld.calls import events
from toolcelld.calls.call import Call
from toolcelld.calls.outcomes.history import CallSummary
from toolcelld.calls.outcomes.outcome import LEASE_EXPIRED, Kind, Stop
from toolcelld.calls.questions import Questions
from toolcelld.calls.request import Plan, Request
from toolcelld.calls.timers import Deadlines, MessageAllowance
from toolcelld.catalog.catalog import Catalog
from toolcelld.catalog.directory import Pin
from toolcelld.config.resolution.settings import NO_LIMITS, Limits, lower
from toolcelld.errors import BadRequest, BugBarrier, Refusal, RefusalReason
from toolcelld.event_log import OperatorEvent
from toolcelld.lifecycle import SESSION, CallEvent, CallState, SessionEvent, SessionState, StateMachine
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.project import Project
from toolcelld.pool.fair_queue import Places
from toolcelld.pool.worker import Worker
from toolcelld.services import Services
from toolcelld.sessions.admission import Admission, check_ancestors
from toolcelld.sessions.caller import AGENT, Caller
from toolcelld.sessions.idempotency import IdempotencyCache
from toolcelld.sessions.lease import Lease
from toolcelld.sessions.outbox import Outbox, StartEvents
from toolcelld.sessions.retention import OUTCOME_BYTES, Retention
from toolcelld.sessions.session_events import SessionEvents
from toolcelld.sessions.waiting import WaitingCalls

if TYPE_CHECKING:
    from toolcelld.sessions.registry import Sessions

CALLS_MAX: Final = 512
"""Waiting and running calls of one session."""
WHOLE_BYTES_MAX: Final = 48
"""Below this size a call's tool and arguments are kept as they are, for a repeated id: a hash of them takes longer than to copy
them, and is not much shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """The options of a new session."""

    agent: str
    directory: str
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    linger_seconds: float | None = None
    answers: bool = False
    limits: Limits = NO_LIMITS
    follow: bool = False
    services: frozenset[str] = frozenset()
    at_once: bool = False  # opening waits for no file that is still being described
    moved: bool = False  # it was on another machine, where its tools may have kept something
    id: str = ""  # of a placed session; otherwise one is made
    caller: Caller = AGENT


class Session(StateMachine[SessionState, SessionEvent]):
    """A client session, created by `Sessions`."""

    table = SESSION
    state = SessionState.OPEN

    def __init__(
        self,
        services: Services,
        sessions: Sessions,
        request: OpenRequest,
        pin: Pin,
        project: Project,
    ) -> None:
        self.services = services
        self._sessions = sessions
        self.id = request.id or f"s-{secrets.token_hex(6)}"
        self.secret = secrets.token_urlsafe(24)
        self.secret_digest = hashlib.sha256(self.secret.encode()).digest()
        self.agent = request.agent
        self.request = request
        self.answers = request.answers
        self.offered_services = request.services
        self.directory = pin.catalog.directory
        self.worktree = project.worktree
        self.outbox = Outbox()
        self.opened_at = time.time()
        self.calls: dict[str, Call] = {}
        self.calls_ended = 0
        self.start_events = StartEvents(self.outbox)
        self.deadlines = Deadlines()
        self.allowance = MessageAllowance()
        self.always: set[tuple[str, str, str, str]] = set()
        self.places = Places(services.config.daemon.calls_per_session)
        self.hook_places = Places(services.config.daemon.calls_per_session)
        self.stream = 0  # counts the streams; only the newest one pumps
        self._streams = 0  # that have not left
        self.draining = False  # with the daemon: what runs goes on, what is new is refused
        self.superseded = asyncio.Event()
        self.closed = asyncio.Event()
        self._pin = pin
        self.idempotency = IdempotencyCache()
        self.retention = Retention(sessions.retention, self.outbox, self.idempotency)
        self.has_room = self.retention.has_room
        self._project = sessions.projects.join(self.directory, project)
        self._watch = services.watch if request.follow else None
        self._waiting = WaitingCalls(self, pin, self._project, self._watch)
        self._loop = asyncio.get_running_loop()
        self.after_call, self.project_changed = self._project.after_call, self._project.changed
        self._admission = Admission(
            services,
            self.directory,
            self._project,
            allow=request.allow,
            deny=request.deny,
            agent=request.agent,
            tenant=request.caller.tenant,
        )
        self.session_events = SessionEvents(self)
        self._lost: set[str] = set()
        self._kept: set[str] = set()  # files whose state is that of this machine
        self._linger: asyncio.TimerHandle | None = None
        caller = request.caller
        placed = caller.lease
        self.node, self.fence = (placed.node, placed.fence) if placed is not None else ("", 0)
        self.lease = (
            Lease(caller.lease_seconds, caller.expires, self._lease_over) if caller.lease_seconds else None
        )
        self._shutdown: asyncio.Task[None] | None = None  # tells the tools that the session ends
        pin.subscribe(self._on_catalog)  # a catalog may have come since the pin was made
        if request.follow:
            services.watch.follow(self.directory)

    @property
    def catalog(self) -> Catalog:
        """The catalog generation that calls are admitted with."""
        return self._pin.catalog

    @property
    def offered(self) -> Catalog:
        """The same without the tools that this session may not call: what its client sees."""
        return self._admission.offered(self._pin.catalog)

    # Streams

    @contextlib.contextmanager
    def attached(self) -> Generator[asyncio.Event]:
        """Connect a stream for as long as the context lasts; it replaces the one before.

        The event is set when another stream has replaced this one.
        """
        self.fire(SessionEvent.ATTACH)
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self.superseded.set()
        superseded = self.superseded = asyncio.Event()
        self.stream += 1
        self._streams += 1
        stream = self.stream
        try:
            if stream > 1:
                self.outbox.rewind()
                for call in list(self.calls.values()):  # a question that is refused can end its call
                    for questions in call.questions:
                        questions.ask_again(self.outbox.holds)
            yield superseded
        finally:
            self._streams -= 1
            self._detach(stream)
            self._release_if_over()

    def _release_if_over(self) -> None:
        """Count nothing of an ended session any more, when no stream is left that could make it hold more."""
        if self.state is SessionState.CLOSED and not self._streams:
            self.retention.close()

    def _detach(self, stream: int) -> None:
        """Disconnect a stream. If it was the current one, the linger begins."""
        if stream != self.stream or self.state is SessionState.CLOSED:
            return
        if self.fire(SessionEvent.DETACH) is not SessionState.DETACHED:
            return
        linger = self.request.linger_seconds
        seconds = self.services.config.daemon.linger_seconds if linger is None else linger
        self.services.happenings.publish(OperatorEvent("session.detached", session_id=self.id))
        if seconds <= 0:
            self.close(Stop(Kind.ABORTED, "client_gone", "the client is gone"))
        else:
            gone = Stop(Kind.ABORTED, "client_gone", f"the client has been gone for {seconds:g} s")
            self._linger = self._loop.call_later(seconds, self.close, gone)

    def close(self, stop: Stop) -> None:
        """Refuse new calls and stop the running ones; the session is CLOSED when the last has ended."""
        if self.state in (SessionState.CLOSING, SessionState.CLOSED):
            return
        self.fire(SessionEvent.CLOSE)
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self.lease is not None:
            self.lease.end()
        for call in list(self.calls.values()):
            call.stop(stop)
        self._close_if_empty()

    def _lease_over(self) -> None:
        seconds = self.request.caller.lease_seconds
        text = f"the session's lease is over: its client had {seconds:g} s to say anything"
        self.close(Stop(Kind.ABORTED, LEASE_EXPIRED, text))

    def _close_if_empty(self) -> None:
        if self.calls or self.state is not SessionState.CLOSING:
            return
        if (shutdown := self.session_events.end()) is not None:
            self._shutdown = shutdown
            shutdown.add_done_callback(lambda _: self._closed_for_good())
        elif self._shutdown is None:
            self._closed_for_good()

    def _closed_for_good(self) -> None:
        self.fire(SessionEvent.EMPTY)
        self.deadlines.close()
        self._release_if_over()
        self.services.pool.retire_owned(self.id)
        self._pin.close()
        self._sessions.projects.leave(self.directory)
        if self.request.follow:
            self.services.watch.leave(self.directory)
        self.closed.set()
        self.outbox.ready.set()
        self._sessions.on_closed(self)

    # The catalog

    def advance(self) -> Catalog:
        """Move to the newest catalog."""
        before = self._pin.catalog
        catalog = self._pin.advance()
        self._admission.note_changes(before, catalog)
        self.session_events.wake()
        return catalog

    def republish(self, *, answers: bool = False) -> None:
        """Move to the newest catalog and send it."""
        self.advance()
        for part in events.published(self.offered, answers=answers):
            self.outbox.put(part)

    def _on_catalog(self, catalog: Catalog) -> None:
        """Publish or announce a newer catalog, and start the calls that waited for it."""
        if self.request.follow or self.catalog.is_partial:
            # One that was opened before everything was described gets the rest without asking.
            self.republish()
        else:
            self.outbox.put(events.CatalogChanged(catalog.generation))
        self.services.happenings.publish(OperatorEvent("catalog.changed", session_id=self.id))
        self._waiting.on_catalog()

    # Calls

    def admit(self, request: Request) -> None:
        """Start a call, rejoin a known one, or have it wait for its tool as it was saved. Raises `Refusal`."""
        call_id = request.call_id
        try:
            tool, arguments = request.tool.encode(), request.arguments
            if len(tool) + len(arguments) < WHOLE_BYTES_MAX:
                digest = tool + b"\0" + arguments  # JSON has no such byte
            else:
                digest = hashlib.blake2b(arguments, key=tool[:64], digest_size=16).digest()
            if call_id in self.calls or call_id in self.idempotency.digests:
                self._rejoin(call_id, digest)
                return
            if self.state is not SessionState.OPEN or self.draining or len(self.calls) >= CALLS_MAX:
                raise self._no_room()
            self.retention.check(len(request.arguments) + OUTCOME_BYTES)
            if self.request.limits is not NO_LIMITS:
                request = request._replace(limits=lower(self.request.limits, request.limits))
            unread = None
            if self._watch is not None or not self._project.is_current():
                unread = self._waiting.unread()
            catalog = self._pin.catalog
            waits = unread is not None or (
                (catalog.awaited or not catalog.generation) and catalog.awaits(request.tool)
            )
            plan = None if waits else self._plan(request)
        except Refusal as refusal:
            if refusal.reason is not RefusalReason.CALL_EXISTS and call_id not in self.calls:
                self._refused(Call(request, self).refused(refusal))
            raise
        call = self.calls[call_id] = Call(request, self, digest)
        self._sessions.recent.accept(call)
        self.retention.arguments_bytes += call.arguments_bytes
        if self.services.happenings.readers:
            self.services.happenings.publish(
                OperatorEvent("call.accepted", session_id=self.id, call_id=call_id, tool=request.tool)
            )
        if plan is not None:
            self._start(call, plan)
        else:
            self._waiting.add(call, unread)
            call.run_clock()
        for path, text in list(self.services.packages.preparing.items()):
            self.prepare(path, text)

    def _refused(self, summary: CallSummary) -> None:
        """Remember a call that is not admitted, for operators."""
        self._sessions.recent.refuse(summary)
        if self.services.happenings.readers:
            reason, session, call = summary.refusal[0], self.id, summary.call_id
            self.services.happenings.publish(
                OperatorEvent(
                    "call.refused",
                    session_id=session,
                    call_id=call,
                    tool=summary.tool,
                    message=reason,
                    about=summary,
                )
            )

    def _rejoin(self, call_id: str, digest: bytes) -> None:
        """Send again what is told of a known call. Raises `Refusal` for other arguments."""
        call = self.calls.get(call_id)
        if digest != (call.digest if call is not None else self.idempotency.digests[call_id]):
            raise Refusal(
                RefusalReason.CALL_EXISTS,
                f"call {call_id} exists with another tool or other arguments; choose another id.",
                field="call.call_id",
            )
        told: tuple[events.Event, ...] = (events.CallAccepted(0, call_id=call_id),)
        if call is None:
            told = self.idempotency.ending(call_id)
        elif call.plan is None:
            return  # nothing was decided about it
        self.retention.check(sum(event.size_bytes for event in told))
        for each in told:
            event = copy(each)
            event.number = 0
            self.outbox.put(event)

    def prepare(self, path: str, text: str) -> None:
        """Tell the calls that wait for a tool file that its packages are being installed, and stop their clocks.

        Args:
            text: What is done; empty when it is done.
        """
        for call in list(self.calls.values()):
            if call.plan is not None:
                if call.plan.tool.path == path:
                    call.prepare(text)
            else:
                self._waiting.prepare(call, path, text)

    def reconsider(self) -> None:
        """Withdraw the open questions about calls that the rules, which have changed, no longer allow."""
        for call in list(self.calls.values()):
            if call.state is CallState.WAITING_PERMISSION:
                try:
                    self.plan_for(call.request.tool)
                except Refusal as refusal:
                    call.refuse(refusal)

    def hold_arguments(self, size: int) -> None:
        """Count arguments that begin to come, or are complete if negative. Raises `Refusal` if there is no room."""
        if size > 0:
            self.retention.check(size)
        self.retention.arguments_bytes += size

    def _no_room(self) -> Refusal:
        """Return why the session cannot accept another call."""
        if self.state is not SessionState.OPEN:
            return Refusal(
                RefusalReason.SESSION_CLOSED, f"session {self.id} is {self.state}; open another one."
            )
        if self.draining:
            return self._sessions.draining_refusal()
        return Refusal(
            RefusalReason.BUSY,
            f"the session has {CALLS_MAX} calls already; wait for some to end.",
            retry_seconds=1,
            quota=f"calls of a session: {CALLS_MAX}",
        )

    def plan_for(self, tool: str) -> Plan:
        """Return how a tool runs in this session. Raises `Refusal`."""
        self._project.before_call()
        return self._plan(Request("", tool, b"", limits=self.request.limits))

    def _plan(self, request: Request) -> Plan:
        """Return the plan of a call. Raises `Refusal`."""
        plan = self._admission.plan(request.tool, self._pin.catalog)
        if self.services.pool.quarantine.records:
            self.services.pool.quarantine.check(plan.spec.file)
        if plan.settings.isolation == "session" or request.limits is not NO_LIMITS:
            plan = plan.under(request.limits, self.id, self.services.pool)
        if request.parent_call_id:
            check_ancestors(request, plan.spec, self._parent)
        return plan

    def _start(self, call: Call, plan: Plan) -> None:
        self.start_events.accept(call, self.places.queued if self.places.waiting else 0)
        call.start(plan)

    def start_late(self, call: Call) -> None:
        """Start a call that waited for its tool, or refuse it if there is no such tool."""
        self._waiting.remove(call)
        with BugBarrier(call.fail):
            try:
                if self.draining:
                    raise self._sessions.draining_refusal()
                self._project.before_call()
                plan = self._plan(call.request)
            except Refusal as refusal:
                call.end(CallEvent.REFUSED, refusal)
            else:
                self._start(call, plan)

    def _parent(self, request: Request) -> Call | None:
        """Return the parent call, also from another session, or None."""
        if not request.parent_call_id:
            return None
        return self.calls.get(request.parent_call_id) or self._sessions.call(
            request.parent_call_id, self.request.caller.owner
        )

    def answer(self, call_id: str, ask_id: int, *, allowed: bool, always: bool, message: str) -> None:
        """Send an answer to the tool; a late one is ignored. Raises `Refusal` for a question that was not asked."""
        if (questions := self._who_asked(call_id, ask_id, "answer")) is not None:
            questions.answer(ask_id, allowed, always, message)

    def reply(self, call_id: str, ask_id: int, *, result: bytes, message: str) -> None:
        """Send the result of a service request to the tool, as `answer` does."""
        if (questions := self._who_asked(call_id, ask_id, "reply")) is not None:
            questions.reply(ask_id, result, message)

    def _who_asked(self, call_id: str, ask_id: int, field: str) -> Questions | None:
        call = self.calls.get(call_id)
        if call is None and call_id in self.idempotency.digests:
            return None
        asked = call.questions if call is not None else ()
        questions = next((questions for questions in asked if questions.was_asked(ask_id)), None)
        if questions is None:
            raise BadRequest(
                f"call {call_id[:128]!r} has asked no question {ask_id}.",
                field=f"{field}.call_id" if call is None else f"{field}.ask_id",
            )
        return questions

    def abort(self, call_id: str, stop: Stop) -> bool:
        """Stop a call. Return False if it has ended. Raises `Refusal` for an unknown id."""
        call = self.calls.get(call_id)
        if call is not None:
            return call.stop(stop)
        if call_id in self.idempotency.digests:
            return False
        raise Refusal(
            RefusalReason.UNKNOWN_CALL, f"session {self.id} has no call {call_id[:128]!r}.", field="call_id"
        )

    # What calls tell it

    def tell(self, event: events.Event) -> None:
        """Queue an event for the client, after the start events of its call."""
        self.start_events.send(event.call_id)
        self.outbox.put(event)

    def on_begun(self, call: Call) -> None:
        """Watch the limits of a call that a worker has, and send its Started event where Accepted was sent."""
        if (monitor := self._sessions.limit_monitor).timer is None:
            monitor.wake()
        if call.id not in self.start_events.delayed:
            self.start_events.start(call)

    def on_waited_out(self, call: Call) -> None:
        """Refuse a call whose timeout has passed, if there is no such tool."""
        if self.catalog.find(call.request.tool) is None:
            self.start_late(call)

    def on_ended(self, call: Call, ending: tuple[events.Event, ...]) -> None:
        """Send the ending, and keep it for a repeated call id."""
        self.start_events.drop(call.id)
        for event in ending:
            self.outbox.put(event)
        self.calls.pop(call.id, None)
        self.calls_ended += 1
        self.retention.arguments_bytes -= call.arguments_bytes
        summary = call.summary()
        size_bytes = self._sessions.recent.add(summary)
        if call.plan is not None:
            self.idempotency.end(summary, call.digest, ending, size_bytes)
        else:  # nothing was decided about it, and the same id may come again
            self._waiting.remove(call)
        self.retention.count()
        if self.services.happenings.readers:
            outcome = summary.outcome
            self.services.happenings.publish(
                OperatorEvent(
                    "call.ended",
                    session_id=self.id,
                    call_id=call.id,
                    tool=summary.tool,
                    worker_id=summary.worker_id,
                    message=str(outcome) if outcome is not None else "",
                    about=summary,
                )
            )
        if self.state is SessionState.CLOSING:
            self._close_if_empty()

    def take_state_lost(self, spec: CellSpec) -> bool:
        """Return once whether the session's own worker for this file was lost since its last call."""
        if not spec.serial:
            return False
        path = spec.file.path
        lost = path in self._lost or (self.request.moved and path not in self._kept)
        self._lost.discard(path)
        self._kept.add(path)
        return lost

    def on_worker_lost(self, worker: Worker) -> None:
        """Record that a worker with this session's state has exited."""
        if worker.spec.serial and worker.calls:
            self._lost.add(worker.spec.file.path)

    def known_calls(self) -> list[CallSummary]:
        """Return the running calls and those whose ending is not acknowledged."""
        running = (call.summary() for call in self.calls.values())
        untold = (self.idempotency.call(call_id) for call_id in self.outbox.endings())
        return [*running, *(call for call in untold if call is not None)]

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.state.upper()} of {self.agent} with {len(self.calls)} calls>"
