"""One client's stay: its directory, its catalog, its running calls; ending it ends them.

Calls belong to the session and not to a stream. A stream that breaks detaches the session; who
shows the resume token within the linger takes it over and finds every call again. After the
linger, or when the client says so, or when the daemon drains, the session closes: it refuses
new calls, has the running ones stopped, and is gone when the last of them has ended.

`Session.admit` is the only door for a call.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from toolcelld.calls import events
from toolcelld.calls.call import Call
from toolcelld.calls.events import parts
from toolcelld.calls.history import CallSummary
from toolcelld.calls.outcome import EMPTY_BODY, Kind, Outcome, Stop
from toolcelld.calls.request import Request
from toolcelld.catalog.catalog import Catalog
from toolcelld.catalog.registry import CatalogRegistry, Pin
from toolcelld.catalog.watch import Watch
from toolcelld.config.load import Config
from toolcelld.config.settings import NO_LIMITS, Limits, lower
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.lifecycle import SESSION, Machine, SessionEvent, SessionState
from toolcelld.output.spill import SpillStore
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.profiles import project_of
from toolcelld.policy.ruleset import Ruleset
from toolcelld.pool.pool import Pool
from toolcelld.pool.slots import Slots
from toolcelld.pool.worker import Worker
from toolcelld.sessions.admission import Admission
from toolcelld.sessions.idempotency import IdempotencyCache
from toolcelld.sessions.outbox import Outbox
from toolcelld.sessions.pending import Early

__all__ = ["House", "OpenRequest", "Session", "draining"]

CALLS_MAX: Final = 512
"""Waiting and running calls of one session."""
QUIET_SECONDS: Final = 0.005
"""What a call may take before its beginning is told; a warm one takes a tenth of it."""
PUBLISHED_BYTES: Final = 40 * 1024
"""Of tools in one part of a catalog."""
ANCESTORS_MAX: Final = 4
"""How deep calls may start calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """What a client wants of a session."""

    agent: str
    directory: str
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    linger_seconds: float | None = None
    answers: bool = False
    limits: Limits = NO_LIMITS
    follow: bool = False
    services: frozenset[str] = frozenset()


class House(Protocol):
    """What sessions need of the daemon."""

    catalogs: CatalogRegistry
    pool: Pool
    spills: SpillStore
    watch: Watch
    tasks: asyncio.TaskGroup
    environment: Mapping[str, str]

    @property
    def config(self) -> Config:
        """As it is now."""
        ...

    @property
    def regime(self) -> Ruleset:
        """The rules in force."""
        ...

    def find_call(self, call_id: str) -> Call | None:
        """A running call of any session."""
        ...

    def log(self, call_id: str, tool: str, source: str, level: str, text: str) -> None:
        """Keep a line."""
        ...

    def happened(self, what: str, *, session_id: str = "", call: Call | None = None) -> None:
        """Tell operators."""
        ...

    def remember(self, call: CallSummary, size_bytes: int) -> None:
        """Keep an ended call for operators."""
        ...


class _Quiet(NamedTuple):
    """A call of which nothing has been told."""

    call: Call
    queued: int  # calls before it, when it came
    until: float


class Session:
    """An open session. Made by `Sessions`, over when it is CLOSED."""

    def __init__(
        self, house: House, request: OpenRequest, pin: Pin, closed: Callable[[Session], None]
    ) -> None:
        self.id = f"s-{secrets.token_hex(6)}"
        self.secret = secrets.token_urlsafe(24)
        self.secret_digest = hashlib.sha256(self.secret.encode()).digest()
        self.machine = Machine(SESSION, SessionState.OPEN)
        self.agent = request.agent
        self.request = request
        self.answers = request.answers
        self.services = request.services
        self.directory = pin.catalog.directory
        self.worktree = pin.catalog.worktree
        self.outbox = Outbox()
        self.opened_at = time.time()
        self.calls: dict[str, Call] = {}
        self.calls_ended = 0
        self._loop = asyncio.get_running_loop()
        self._quiet: dict[str, _Quiet] = {}  # calls of which nothing has been told, the oldest first
        self._telling: asyncio.TimerHandle | None = None  # of those that take longer
        self.always: set[tuple[str, str, str]] = set()
        self.slots = Slots(house.config.daemon.calls_per_session)
        self.spills = house.spills
        self.stream = 0  # counts the streams; only the newest one pumps
        self.draining = False  # with the daemon: what runs goes on, what is new is refused
        self.superseded = asyncio.Event()
        self.closed = asyncio.Event()
        self._house = house
        self._pin = pin
        self._on_closed = closed
        self.endings = IdempotencyCache()
        self._early = Early(self._admit_early)
        self._admission = Admission(
            lambda: house.regime,
            self.directory,
            project_of(self.directory, self.worktree, house.regime.around.home),
            allow=request.allow,
            deny=request.deny,
        )
        self._lost: set[str] = set()
        self._linger: asyncio.TimerHandle | None = None
        pin.on_change = self._on_catalog
        if request.follow:
            house.watch.follow(self.directory)

    @property
    def state(self) -> SessionState:
        """Where it is."""
        return self.machine.state

    @property
    def catalog(self) -> Catalog:
        """The catalog that its calls are admitted under."""
        return self._pin.catalog

    # Streams

    def attach(self) -> int:
        """A stream takes over; its number says later whether it still has the session."""
        self.machine.fire(SessionEvent.ATTACH)
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        self.superseded.set()
        self.superseded = asyncio.Event()
        self.stream += 1
        if self.stream > 1:
            self.outbox.rewind()
            for call in self.calls.values():
                call.questions.ask_again(self.outbox.holds)
        return self.stream

    def detach(self, stream: int) -> None:
        """A stream broke. If it was the one that pumped, the linger begins."""
        if stream != self.stream or self.state is SessionState.CLOSED:
            return
        if self.machine.fire(SessionEvent.DETACH) is not SessionState.DETACHED:
            return
        linger = self.request.linger_seconds
        seconds = self._house.config.daemon.linger_seconds if linger is None else linger
        self._house.happened("session.detached", session_id=self.id)
        if seconds <= 0:
            self.close(Stop(Kind.ABORTED, "client_gone", "the client is gone"))
        else:
            loop = asyncio.get_running_loop()
            gone = Stop(Kind.ABORTED, "client_gone", f"the client has been gone for {seconds:g} s")
            self._linger = loop.call_later(seconds, self.close, gone)

    def close(self, stop: Stop) -> None:
        """Refuse new calls and stop the running ones; CLOSED when the last has ended."""
        if self.state in (SessionState.CLOSING, SessionState.CLOSED):
            return
        self.machine.fire(SessionEvent.CLOSE)
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        for call_id in self._early.drop_all():
            self._end_early(call_id, stop)
        for call in list(self.calls.values()):
            call.stop(stop)
        self._close_if_empty()

    def _close_if_empty(self) -> None:
        if self.calls or self.state is not SessionState.CLOSING:
            return
        self.machine.fire(SessionEvent.EMPTY)
        self._house.pool.retire_owned(self.id)
        self._pin.close()
        if self.request.follow:
            self._house.watch.leave(self.directory)
        self.closed.set()
        self.outbox.ready.set()
        self._on_closed(self)

    # The catalog

    def publish(self, catalog: Catalog, *, answers: bool = False) -> list[events.Published]:
        """The catalog in parts, which answer a Refresh or come unasked."""
        parts: list[events.Published] = []
        start = size = 0
        tools = list(catalog.tools.values())
        for index, tool in enumerate(tools):
            size += 128 + len(tool.description) * 2 + len(tool.input_schema) + len(tool.path)
            if size > PUBLISHED_BYTES and index > start:
                parts.append(events.Published(catalog, start, index, last=False, answers=answers))
                start, size = index, 0
        parts.append(events.Published(catalog, start, len(tools), last=True, answers=answers))
        return parts

    def advance(self) -> Catalog:
        """Move to the newest catalog."""
        return self._pin.advance()

    def republish(self, *, answers: bool = False) -> None:
        """Move to the newest catalog and send it."""
        for part in self.publish(self.advance(), answers=answers):
            self.outbox.put(part)

    def _on_catalog(self, catalog: Catalog) -> None:
        """A newer catalog is there."""
        if self.request.follow or self.catalog.pending:
            # One that was opened before everything was described gets the rest without asking.
            self.republish()
        else:
            self.outbox.put(events.CatalogChanged(catalog.generation))
        self._house.happened("catalog.changed", session_id=self.id)
        self._early.look(lambda request: not self._may_come(request.tool))

    # Calls

    def admit(self, request: Request) -> None:
        """Start a call, rejoin it, or have it wait until its tool is described. Raises `Refusal`."""
        digest = hashlib.blake2b(request.arguments, key=request.tool.encode()[:64], digest_size=16).digest()
        if (told := self.endings.rejoin(request.call_id, digest)) is not None:
            for event in told if request.call_id not in self._early else ():
                self.outbox.put(replace(event, number=0))
            return
        self._check_room()
        if self._may_come(request.tool):
            self.endings.begin(request.call_id, digest)
            self._early.wait(request)
        else:
            self._start(request, digest)

    def _check_room(self) -> None:
        """Whether there can be another call at all."""
        if self.state is not SessionState.OPEN:
            raise Refusal(
                RefusalReason.SESSION_CLOSED, f"session {self.id} is {self.state}; open another one."
            )
        if self.draining:
            raise draining()
        if len(self.calls) + len(self._early) >= CALLS_MAX:
            raise Refusal(
                RefusalReason.BUSY,
                f"the session has {CALLS_MAX} calls already; wait for some to end.",
                retry_seconds=1,
                quota=f"calls of a session: {CALLS_MAX}",
            )

    def _start(self, request: Request, digest: bytes) -> None:
        prepared = self._admission.prepare(request.tool, self.catalog)
        self._house.pool.quarantine.check(prepared.spec.file)
        limits = lower(self.request.limits, request.limits)
        spec = prepared.cell(self.id, request.call_id, limits)
        self._check_ancestors(request, spec)
        call = Call(
            request if limits is request.limits else request._replace(limits=limits),
            prepared.tool,
            prepared.settings,
            spec,
            self,
            generation=self.catalog.generation,
            grace_seconds=self._house.config.daemon.abort_grace_seconds,
        )
        self.calls[call.id] = call
        self.endings.begin(call.id, digest)
        self._quiet[call.id] = _Quiet(call, self.slots.waiting, self._loop.time() + QUIET_SECONDS)
        if self._telling is None:
            self._telling = self._loop.call_later(QUIET_SECONDS, self._tell_beginnings)
        self._house.happened("call.accepted", session_id=self.id, call=call)
        call.start(self._house.pool, self._house.tasks)

    def _may_come(self, tool: str) -> bool:
        """Whether a tool that is not there may be in a file that is still being described."""
        return (
            tool not in self.catalog.tools and self.catalog.is_partial and not self.catalog.problem_of(tool)
        )

    def _admit_early(self, request: Request) -> None:
        """Start a call that has waited for its tool, or refuse it."""
        digest = self.endings.forget(request.call_id)
        try:
            self._check_room()
            self._start(request, digest)
        except Refusal as refusal:
            self.outbox.put(events.Refused(refusal, call_id=request.call_id))

    def _end_early(self, call_id: str, stop: Stop) -> None:
        self.endings.forget(call_id)
        outcome = Outcome(stop.kind, stop.cause, f"{stop.text}; it had not started.", EMPTY_BODY)
        for event in parts(call_id, outcome):
            self.outbox.put(event)

    def _check_ancestors(self, request: Request, spec: CellSpec) -> None:
        """Calls that start calls: not too deep, and never one that waits for a cell which an ancestor holds."""
        parent = self._parent(request)
        depth = 0
        while parent is not None:
            depth += 1
            if depth > ANCESTORS_MAX:
                raise Refusal(
                    RefusalReason.WOULD_DEADLOCK, f"calls start calls more than {ANCESTORS_MAX} deep."
                )
            if spec.serial and parent.spec == spec:
                raise Refusal(
                    RefusalReason.WOULD_DEADLOCK,
                    f'{request.tool} needs the cell that its ancestor {parent.id} holds: isolation is "session".',
                )
            parent = self._parent(parent.request)

    def _parent(self, request: Request) -> Call | None:
        """The call that a call is made for; another session's, where that was opened for it."""
        if not request.parent_call_id:
            return None
        return self.calls.get(request.parent_call_id) or self._house.find_call(request.parent_call_id)

    def acknowledge(self, number: int) -> None:
        """The client has dealt with the events up to this one. Raises `Refusal` for one that it cannot have."""
        if number > self.outbox.number:
            raise Refusal(
                RefusalReason.BAD_REQUEST,
                f"acknowledged: {number}, but the newest event of the session is {self.outbox.number}.",
                field="acknowledged",
            )
        self.outbox.acknowledge(number)

    def answer(self, call_id: str, ask_id: int, *, allowed: bool, always: bool, message: str) -> None:
        """Pass an answer on; one that comes too late is passed over. Raises `Refusal` where nothing was asked."""
        if (call := self._who_asked(call_id, ask_id, "answer")) is not None:
            call.questions.answer(ask_id, allowed, always, message)

    def reply(self, call_id: str, ask_id: int, *, result: bytes, message: str) -> None:
        """Pass on what a request came to, as an answer."""
        if (call := self._who_asked(call_id, ask_id, "reply")) is not None:
            call.questions.reply(ask_id, result, message)

    def _who_asked(self, call_id: str, ask_id: int, field: str) -> Call | None:
        call = self.calls.get(call_id)
        if call is None and call_id in self.endings:
            return None
        if call is None or not call.questions.was_asked(ask_id):
            raise Refusal(
                RefusalReason.BAD_REQUEST,
                f"call {call_id[:128]!r} has asked no question {ask_id}.",
                field=f"{field}.call_id" if call is None else f"{field}.ask_id",
            )
        return call

    def abort(self, call_id: str, stop: Stop) -> bool:
        """Stop a call; False when it has ended. Raises `Refusal` when there never was one."""
        call = self.calls.get(call_id)
        if call is not None:
            return call.stop(stop)
        if self._early.drop(call_id):
            self._end_early(call_id, stop)
            return True
        if call_id in self.endings:
            return False
        raise Refusal(
            RefusalReason.UNKNOWN_CALL, f"session {self.id} has no call {call_id[:128]!r}.", field="call_id"
        )

    # What calls need; see `calls.Host`

    def tell(self, event: events.Event) -> None:
        """Queue an event for the client, behind the beginning of its call."""
        if (quiet := self._quiet.pop(event.call_id, None)) is not None:
            self._tell_beginning(quiet)
        self.outbox.put(event)

    def _tell_beginnings(self) -> None:
        """Of the calls that are not so quick. One clock for all, as each would set and stop one of its own."""
        self._telling = None
        for call_id, quiet in list(self._quiet.items()):
            if (left := quiet.until - self._loop.time()) > 0:
                self._telling = self._loop.call_later(left, self._tell_beginnings)
                return
            del self._quiet[call_id]
            self._tell_beginning(quiet)

    def _tell_beginning(self, quiet: _Quiet) -> None:
        """That a call was accepted, and started; a call that ends before tells only how."""
        call = quiet.call
        self.outbox.put(events.Accepted(quiet.queued, call_id=call.id, time=call.accepted_at))
        if call.worker is not None:
            self.on_begun(call)

    def on_begun(self, call: Call) -> None:
        """A worker has the call."""
        if call.id not in self._quiet and call.worker is not None:
            self.outbox.put(
                events.Started(call.worker.id, call.course.queue_seconds, call_id=call.id, time=call.begun_at)
            )

    def log(self, call_id: str, tool: str, source: str, level: str, text: str) -> None:
        """Keep a line for operators."""
        self._house.log(call_id, tool, source, level, text)

    def on_ended(self, call: Call, told: tuple[events.Event, ...]) -> None:
        """Tell the ending, and keep it for whoever asks for the same call again."""
        self._quiet.pop(call.id, None)
        for event in told:
            self.outbox.put(event)
        self.calls.pop(call.id, None)
        self.calls_ended += 1
        summary = call.summary()
        size_bytes = summary.size_bytes
        self.endings.end(summary, told, size_bytes)
        self._house.remember(summary, size_bytes)
        self._house.happened("call.ended", session_id=self.id, call=call)
        self._close_if_empty()

    def take_state_lost(self, spec: CellSpec) -> bool:
        """Whether the session's own worker for this file was lost since the last call; says so once."""
        if not spec.serial or spec.file.path not in self._lost:
            return False
        self._lost.discard(spec.file.path)
        return True

    def on_worker_lost(self, worker: Worker) -> None:
        """A worker of this session's own has died with the state of the calls before."""
        if worker.spec.serial and worker.calls:
            self._lost.add(worker.spec.file.path)

    def known_calls(self) -> list[CallSummary]:
        """Running ones, and those whose ending may not have arrived."""
        running = (call.summary() for call in self.calls.values())
        untold = (self.endings.call(call_id) for call_id in self.outbox.endings())
        return [*running, *(call for call in untold if call is not None)]

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.state.upper()} of {self.agent} with {len(self.calls)} calls>"


def draining() -> Refusal:
    return Refusal(
        RefusalReason.DRAINING, "the daemon is stopping; connect again in a moment.", retry_seconds=1
    )
