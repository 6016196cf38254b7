"""One client's stay: its directory, its catalog, its running calls; ending it ends them.

Calls belong to the session and not to a stream. A stream that breaks detaches the session; who
shows the resume token within the linger takes it over and finds every call again. After the
linger, or when the client says so, or when the daemon drains, the session closes: it refuses
new calls, has the running ones stopped, and is gone when the last of them has ended.

`Session.admit` is the only door for a call.
"""

from __future__ import annotations

import asyncio
import difflib
import fnmatch
import hashlib
import hmac
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from toolcelld import events
from toolcelld.calls import Call, Request
from toolcelld.catalog import Catalog, ToolInfo
from toolcelld.catalogs import Catalogs, DirectoryError, Pin
from toolcelld.config import Config
from toolcelld.lifecycle import SESSION, Machine, SessionEvent
from toolcelld.lifecycle import Session as State
from toolcelld.limits import NO_LIMITS, Limits, Settings, lower, resolve
from toolcelld.outbox import Outbox
from toolcelld.outcome import Kind, Refusal, RefusalReason, Stop
from toolcelld.pool import Pool
from toolcelld.questions import NOBODY
from toolcelld.slots import Slots
from toolcelld.spills import Spills
from toolcelld.workers import CellSpec, Worker

__all__ = ["House", "OpenRequest", "Session", "Sessions"]

SESSIONS_MAX: Final = 1000
"""Each costs a stream and its retained events; a user has a handful of agents."""
CALLS_MAX: Final = 512
"""Waiting and running calls of one session."""
ENDED_MAX: Final = 256
"""Ended calls that a repeated call id finds again, with their outcomes."""
ENDED_BYTES_MAX: Final = 4 * 1024 * 1024
FORGOTTEN_MAX: Final = 10_000
"""Ids of calls whose outcome is not kept any more, so that they never run twice."""
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


class House(Protocol):
    """What sessions need of the daemon."""

    catalogs: Catalogs
    pool: Pool
    spills: Spills
    tasks: asyncio.TaskGroup
    environment: Mapping[str, str]

    @property
    def config(self) -> Config:
        """As it is now."""
        ...

    def log(self, call_id: str, tool: str, source: str, level: str, text: str) -> None:
        """Keep a line."""
        ...

    def happened(self, what: str, *, session_id: str = "", call: Call | None = None) -> None:
        """Tell operators."""
        ...


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What every call of a tool in this session has in common."""

    tool: ToolInfo
    settings: Settings
    spec: CellSpec


@dataclass(frozen=True, slots=True)
class _Ended:
    digest: bytes
    events: tuple[events.Event, ...]
    size_bytes: int
    call: Call


class Session:
    """An open session. Made by `Sessions`, over when it is CLOSED."""

    def __init__(
        self, house: House, request: OpenRequest, pin: Pin, closed: Callable[[Session], None]
    ) -> None:
        self.id = f"s-{secrets.token_hex(6)}"
        self.secret = secrets.token_urlsafe(24)
        self.secret_digest = hashlib.sha256(self.secret.encode()).digest()
        self.machine = Machine(SESSION, State.OPEN)
        self.agent = request.agent
        self.request = request
        self.answers = request.answers
        self.directory = pin.catalog.directory
        self.worktree = pin.catalog.worktree
        self.outbox = Outbox()
        self.opened_at = time.time()
        self.calls: dict[str, Call] = {}
        self.calls_ended = 0
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
        self._config = house.config
        self._prepared: dict[str, _Prepared] = {}
        self._digests: dict[str, bytes] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._ended_bytes = 0
        self._forgotten: OrderedDict[str, bytes] = OrderedDict()
        self._ending: dict[str, list[events.Event]] = {}
        self._lost: set[str] = set()
        self._linger: asyncio.TimerHandle | None = None
        pin.on_change = self._on_catalog

    @property
    def state(self) -> State:
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
            self._ask_again()
        return self.stream

    def _ask_again(self) -> None:
        """Put the open questions to who has come; whoever took note of them may be gone."""
        for call in self.calls.values():
            for question in call.questions.unanswered:
                if not self.answers:
                    call.questions.answer(question.ask_id, False, False, NOBODY)
                elif not self.outbox.holds(question):
                    self.outbox.put(question)

    def detach(self, stream: int) -> None:
        """A stream broke. If it was the one that pumped, the linger begins."""
        if stream != self.stream or self.state is State.CLOSED:
            return
        if self.machine.fire(SessionEvent.DETACH) is not State.DETACHED:
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
        if self.state in (State.CLOSING, State.CLOSED):
            return
        self.machine.fire(SessionEvent.CLOSE)
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        for call in list(self.calls.values()):
            call.stop(stop)
        self._close_if_empty()

    def _close_if_empty(self) -> None:
        if self.calls or self.state is not State.CLOSING:
            return
        self.machine.fire(SessionEvent.EMPTY)
        self._house.pool.retire_owned(self.id)
        self._pin.close()
        self.closed.set()
        self.outbox.ready.set()
        self._on_closed(self)

    # The catalog

    def publish(self, catalog: Catalog) -> list[events.Published]:
        """The catalog in parts."""
        parts: list[events.Published] = []
        start = size = 0
        tools = list(catalog.tools.values())
        for index, tool in enumerate(tools):
            size += 128 + len(tool.description) * 2 + len(tool.input_schema) + len(tool.path)
            if size > PUBLISHED_BYTES and index > start:
                parts.append(events.Published(catalog, start, index, last=False))
                start, size = index, 0
        parts.append(events.Published(catalog, start, len(tools), last=True))
        return parts

    def advance(self) -> Catalog:
        """Move to the newest catalog."""
        self._prepared.clear()
        return self._pin.advance()

    def republish(self) -> None:
        """Move to the newest catalog and send it."""
        for part in self.publish(self.advance()):
            self.outbox.put(part)

    def _on_catalog(self, catalog: Catalog) -> None:
        """A newer catalog is there."""
        if self.request.follow or self.catalog.pending:
            # One that was opened before everything was described gets the rest without asking.
            self.republish()
        else:
            self.outbox.put(events.CatalogChanged(catalog.generation))
        self._house.happened("catalog.changed", session_id=self.id)

    # Calls

    def admit(self, request: Request) -> Call | None:
        """Start a call, or rejoin it (None). Raises `Refusal`."""
        digest = hashlib.blake2b(request.arguments, key=request.tool.encode()[:64], digest_size=16).digest()
        if self._rejoins(request.call_id, digest):
            return None
        if self.state is not State.OPEN:
            raise Refusal(
                RefusalReason.SESSION_CLOSED, f"session {self.id} is {self.state}; open another one."
            )
        if self.draining:
            raise _draining()
        if len(self.calls) >= CALLS_MAX:
            raise Refusal(
                RefusalReason.BUSY,
                f"the session has {CALLS_MAX} calls already; wait for some to end.",
                retry_seconds=1,
                quota=f"calls of a session: {CALLS_MAX}",
            )
        prepared = self._prepare(request.tool)
        limits = lower(self.request.limits, request.limits)
        spec = self._spec(prepared, request.call_id, limits)
        self._check_ancestors(request, spec)
        call = Call(
            request if limits is request.limits else replace(request, limits=limits),
            prepared.tool,
            prepared.settings,
            spec,
            self,
            generation=self.catalog.generation,
            grace_seconds=self._house.config.daemon.abort_grace_seconds,
        )
        self.calls[call.id] = call
        self._digests[call.id] = digest
        self.outbox.put(events.Accepted(self.slots.waiting, call_id=call.id))
        self._house.happened("call.accepted", session_id=self.id, call=call)
        call.start(self._house.pool, self._house.tasks)
        return call

    def _rejoins(self, call_id: str, digest: bytes) -> bool:
        """Whether it is a call that the session has or had; then what it missed is told again."""
        running = self._digests.get(call_id)
        ended = self._ended.get(call_id)
        known = running or (ended.digest if ended is not None else self._forgotten.get(call_id))
        if known is None:
            return False
        if known != digest:
            raise Refusal(
                RefusalReason.CALL_EXISTS,
                f"call {call_id} exists with another tool or other arguments; choose another id.",
                field="call.call_id",
            )
        if running is None and ended is None:
            raise Refusal(
                RefusalReason.CALL_EXISTS,
                f"call {call_id} has ended long ago; its outcome is not kept any more.",
            )
        if ended is not None:
            for event in ended.events:
                self.outbox.put(replace(event, number=0))
        else:
            self.outbox.put(events.Accepted(0, call_id=call_id))
        return True

    def _prepare(self, name: str) -> _Prepared:
        """The tool with its settings; looked up once per catalog and configuration."""
        if self._config is not self._house.config:
            self._config = self._house.config
            self._prepared.clear()
        if (found := self._prepared.get(name)) is not None:
            return found
        tool = find_tool(self.catalog, name)
        if not self._may_call(name):
            raise Refusal(RefusalReason.NOT_ALLOWED, f"this session may not call {name}.", field="call.tool")
        settings = resolve(self._config, name, tool.declared, tool.file.source)
        if not settings.enabled:
            raise Refusal(RefusalReason.DISABLED, f"{name} is switched off: [tool.{name}] enabled = false.")
        spec = CellSpec(
            file=tool.file,
            directory=self.directory,
            environment=granted_environment(self._house.environment, settings.env, tool.file.programs),
            open_files=settings.limits.open_files,
            file_size_bytes=settings.limits.file_size_bytes,
        )
        prepared = self._prepared[name] = _Prepared(tool, settings, spec)
        return prepared

    def _may_call(self, name: str) -> bool:
        allow, deny = self.request.allow, self.request.deny
        return (not allow or any(fnmatch.fnmatchcase(name, pattern) for pattern in allow)) and not any(
            fnmatch.fnmatchcase(name, pattern) for pattern in deny
        )

    def _spec(self, prepared: _Prepared, call_id: str, limits: Limits) -> CellSpec:
        spec = prepared.spec
        isolation = prepared.settings.isolation
        if isolation == "worker" and limits.open_files is None and limits.file_size_bytes is None:
            return spec
        lowered = lower(prepared.settings.limits, limits)
        return replace(
            spec,
            open_files=lowered.open_files,
            file_size_bytes=lowered.file_size_bytes,
            owner={"worker": "", "session": self.id, "call": f"{self.id}/{call_id}"}[isolation],
            serial=isolation == "session",
        )

    def _check_ancestors(self, request: Request, spec: CellSpec) -> None:
        """Calls that start calls: not too deep, and never one that waits for a cell which an ancestor holds."""
        parent = self.calls.get(request.parent_call_id) if request.parent_call_id else None
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
            parent = self.calls.get(parent.request.parent_call_id)

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
        call = self.calls.get(call_id)
        if call is None and (call_id in self._ended or call_id in self._forgotten):
            return
        if call is None or not call.questions.was_asked(ask_id):
            raise Refusal(
                RefusalReason.BAD_REQUEST,
                f"call {call_id[:128]!r} has asked no question {ask_id}.",
                field="answer.call_id" if call is None else "answer.ask_id",
            )
        call.questions.answer(ask_id, allowed, always, message)

    def abort(self, call_id: str, stop: Stop) -> bool:
        """Stop a call; False when it has ended. Raises `Refusal` when there never was one."""
        call = self.calls.get(call_id)
        if call is not None:
            return call.stop(stop)
        if call_id in self._ended or call_id in self._forgotten:
            return False
        raise Refusal(
            RefusalReason.UNKNOWN_CALL, f"session {self.id} has no call {call_id[:128]!r}.", field="call_id"
        )

    # What calls need; see `calls.Host`

    def tell(self, event: events.Event) -> None:
        """Queue an event for the client."""
        if isinstance(event, events.Ended | events.Refused | events.Chunk):
            self._ending.setdefault(event.call_id, []).append(event)
        self.outbox.put(event)

    def log(self, call_id: str, tool: str, source: str, level: str, text: str) -> None:
        """Keep a line for operators."""
        self._house.log(call_id, tool, source, level, text)

    def on_ended(self, call: Call) -> None:
        """Keep the ending for whoever asks for the same call again."""
        self.calls.pop(call.id, None)
        self.calls_ended += 1
        digest = self._digests.pop(call.id)
        told = tuple(self._ending.pop(call.id, ()))
        size = sum(event.size_bytes for event in told)
        self._ended[call.id] = _Ended(digest, told, size, call)
        self._ended_bytes += size
        while len(self._ended) > ENDED_MAX or (self._ended_bytes > ENDED_BYTES_MAX and len(self._ended) > 1):
            old_id, old = self._ended.popitem(last=False)
            self._ended_bytes -= old.size_bytes
            self._forgotten[old_id] = old.digest
            if len(self._forgotten) > FORGOTTEN_MAX:
                self._forgotten.popitem(last=False)
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

    def known_calls(self) -> list[Call]:
        """Running ones, and those whose ending may not have arrived."""
        untold = (self._ended.get(call_id) for call_id in self.outbox.endings())
        return [*self.calls.values(), *(ended.call for ended in untold if ended is not None)]

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.state.upper()} of {self.agent} with {len(self.calls)} calls>"


class Sessions:
    """The sessions there are."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._sessions: dict[str, Session] = {}
        self._emptied = asyncio.Event()
        self._emptied.set()
        self.draining = False

    @property
    def all(self) -> list[Session]:
        """The sessions, the oldest first."""
        return list(self._sessions.values())

    async def open(self, request: OpenRequest, *, field: str = "open.directory") -> Session:
        """Open a session; its directory, which came in that field, is scanned. Raises `Refusal`."""
        self._refuse_if_draining()
        if len(self._sessions) >= SESSIONS_MAX:
            raise Refusal(
                RefusalReason.BUSY,
                f"{SESSIONS_MAX} sessions are open already; close some.",
                retry_seconds=10,
                quota=f"sessions: {SESSIONS_MAX}",
            )
        try:
            pin = await self._house.catalogs.open(request.directory)
        except DirectoryError as error:
            raise Refusal(RefusalReason.BAD_REQUEST, str(error), field=field) from error
        if self.draining:
            pin.close()
            self._refuse_if_draining()
        session = Session(self._house, request, pin, self._closed)
        self._sessions[session.id] = session
        self._emptied.clear()
        self._house.happened("session.opened", session_id=session.id)
        return session

    def _refuse_if_draining(self) -> None:
        if self.draining:
            raise _draining()

    def resume(self, session_id: str, secret: str) -> Session | None:
        """The session that the token is for; None when there is none with that id. Raises `Refusal`."""
        session = self._sessions.get(session_id)
        if session is None or session.state in (State.CLOSING, State.CLOSED):
            return None
        if not secret:
            raise Refusal(
                RefusalReason.SESSION_EXISTS,
                f"session {session_id} exists; show its resume token.",
                field="open.resume_token",
            )
        return self.check(session, secret, "open.resume_token")

    def get(self, session_id: str, secret: str) -> Session:
        """The session, for whoever shows its secret. Raises `Refusal`."""
        session = self._sessions.get(session_id)
        if session is None:
            raise Refusal(
                RefusalReason.UNKNOWN_SESSION, f"there is no session {session_id[:64]!r}.", field="session_id"
            )
        return self.check(session, secret, "resume_token")

    @staticmethod
    def check(session: Session, secret: str, field: str) -> Session:
        """The session, if the secret is its own."""
        digest = hashlib.sha256(secret.encode(errors="replace")).digest()
        if not hmac.compare_digest(digest, session.secret_digest):
            raise Refusal(
                RefusalReason.WRONG_TOKEN, f"that is not the token of session {session.id}.", field=field
            )
        return session

    def find_call(self, beginning: str) -> list[tuple[Session, str]]:
        """The running calls whose id begins so; for operators."""
        return [
            (session, call_id)
            for session in self._sessions.values()
            for call_id in session.calls
            if call_id == beginning or (beginning and call_id.startswith(beginning))
        ]

    def on_worker_dead(self, worker: Worker) -> None:
        """Tell the session whose own worker it was."""
        if (session := self._sessions.get(worker.spec.owner)) is not None:
            session.on_worker_lost(worker)

    def _closed(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        self._house.happened("session.closed", session_id=session.id)
        if not self._sessions:
            self._emptied.set()

    async def drain(self, wait_seconds: float) -> None:
        """Refuse what is new, let what runs go on for a while, then close every session and wait for it."""
        self.draining = True
        for session in self.all:
            session.draining = True
        if wait_seconds > 0:
            deadline = asyncio.get_running_loop().time() + wait_seconds
            for session in self.all:
                for call in list(session.calls.values()):
                    left = deadline - asyncio.get_running_loop().time()
                    if left > 0:
                        await asyncio.wait([call.done], timeout=left)
        for session in self.all:
            session.close(Stop(Kind.ABORTED, "daemon_stopping", "the daemon is stopping"))
        await self._emptied.wait()


def find_tool(catalog: Catalog, name: str, *, field: str = "call.tool") -> ToolInfo:
    """The tool that is named in that field, or a refusal that says why there is none."""
    tool = catalog.tools.get(name)
    if tool is not None:
        return tool
    for problem in catalog.problems:
        if name in (problem.tool, _stem(problem.path)):
            where = f"{problem.path} line {problem.line}" if problem.line else problem.path
            raise Refusal(
                RefusalReason.BROKEN_TOOL,
                f"{problem.tool or name} is {problem.reason}: {where}: {problem.message}",
            )
    near = difflib.get_close_matches(name, catalog.tools, n=3, cutoff=0.0)
    hint = f"; it sees {', '.join(near)}" if near else "; it sees no tools at all"
    waiting = f" ({catalog.pending} files are still being described)" if catalog.pending else ""
    raise Refusal(
        RefusalReason.UNKNOWN_TOOL,
        f"{catalog.directory} sees no tool {name[:64]!r}{hint}{waiting}.",
        field=field,
    )


def _stem(path: str) -> str:
    """What a file's tools are called by; a package is called like its directory."""
    directory, file = os.path.split(path)
    return os.path.basename(directory) if file == "__init__.py" else file.removesuffix(".py")


def _draining() -> Refusal:
    return Refusal(
        RefusalReason.DRAINING, "the daemon is stopping; connect again in a moment.", retry_seconds=1
    )


def granted_environment(
    environment: Mapping[str, str], patterns: Sequence[str], programs: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """The variables whose names are granted, and PATH with the source's programs in front."""
    granted = {
        name: value
        for name, value in environment.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    if programs:
        granted["PATH"] = os.pathsep.join([*programs, granted.get("PATH", os.defpath)])
    return tuple(sorted(granted.items()))
