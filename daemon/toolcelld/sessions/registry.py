"""The registry of open sessions: opening, resuming, finding calls, draining."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

from toolcelld.calls import events
from toolcelld.calls.call import Call
from toolcelld.calls.limit_monitor import LimitMonitor, runs_in
from toolcelld.calls.outcomes.history import CallHistory
from toolcelld.calls.outcomes.outcome import LEASE_EXPIRED, Kind, Stop
from toolcelld.catalog.registry import DirectoryError
from toolcelld.config.remedies import set_command
from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld.event_log import OperatorEvent
from toolcelld.files.looks import look
from toolcelld.lifecycle import SessionState, WorkerState
from toolcelld.pool.worker import Worker
from toolcelld.services import Services
from toolcelld.sessions.caller import Caller, Lease
from toolcelld.sessions.fences import Fences, is_older
from toolcelld.sessions.project_watch import ProjectWatches
from toolcelld.sessions.retention import TotalRetention
from toolcelld.sessions.session import OpenRequest, Session


class Sessions:
    """All open sessions, and what they share besides `Services`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions: dict[str, Session] = {}
        self._emptied = asyncio.Event()
        self._emptied.set()
        self.draining = False
        self.drained: str | None = None
        """The reason of an operator's drain, which may be empty; None without one."""
        self.turned = asyncio.Event()
        """Set when it begins or ends to drain, and another one then: take it before you look, or a turn in between is missed."""
        self.fences = Fences()
        self.retention = TotalRetention(services.config.daemon, self._drop_endings)
        self.recent = CallHistory()
        self.projects = ProjectWatches(services)
        self.limit_monitor = LimitMonitor(lambda: runs_in(services.pool.workers), services.tasks)

    @property
    def all(self) -> list[Session]:
        """All sessions, the oldest first."""
        return list(self._sessions.values())

    def calls(self) -> list[Call]:
        """Return the calls of all sessions that have not ended."""
        return [call for session in self._sessions.values() for call in session.calls.values()]

    async def open(self, request: OpenRequest, *, field: str = "open.directory") -> Session:
        """Open a session and scan its directory. Raises `Refusal`, with `field` as the request's field."""
        self._refuse_if_draining()
        self._check_room(request.caller)
        lease = request.caller.lease
        if lease is not None:
            await self._end_older(lease)
        try:
            pin = await self._services.catalogs.open(
                request.directory, within=request.caller.directory, at_once=request.at_once
            )
        except DirectoryError as error:
            raise BadRequest(str(error), field=field) from error
        try:
            project = await look(
                pin.catalog.directory, self._services.ruleset.find_project, pin.catalog.directory
            )
        except OSError as error:
            pin.close()
            text = f"{request.directory} cannot be opened without following links: {error}"
            raise BadRequest(text, field=field) from error
        except BaseException:
            pin.close()
            raise
        try:  # others were opened meanwhile
            self._refuse_if_draining()
            self._check_room(request.caller)
            if lease is not None:
                self.fences.enter(lease, is_used=self._is_used(lease))
            if request.id in self._sessions:
                raise _exists(request.id)
        except Refusal:
            pin.close()
            raise
        session = Session(self._services, self, request, pin, project)
        self._sessions[session.id] = session
        self._emptied.clear()
        self._services.happenings.publish(
            OperatorEvent(
                "session.opened", session_id=session.id, message=f"{session.agent} in {session.directory}"
            )
        )
        return session

    async def _end_older(self, lease: Lease) -> None:
        """End what has been opened here with an older fence. Raises `Refusal` if this one is older."""
        self.fences.enter(lease, is_used=self._is_used(lease))
        older = [each for each in self.all if is_older(each.request.caller.lease, lease)]
        for session in older:
            text = "the session was placed again, or its volume was on another machine meanwhile"
            session.close(Stop(Kind.ABORTED, LEASE_EXPIRED, text))
        for session in older:
            await session.closed.wait()

    def check_lease(self, lease: Lease) -> None:
        """Raise `Refusal` for a request with a ticket whose lease is over here."""
        session = self._sessions.get(lease.session)
        is_open = session is not None and session.state in (SessionState.OPEN, SessionState.DETACHED)
        self.fences.check(lease, is_open=is_open, is_used=is_open or self._is_used(lease))

    def _is_used(self, lease: Lease) -> bool:
        """Return whether the volume of a lease is in use here, with its fence."""
        place = lease.volume, lease.fence
        known = (each.request.caller.lease for each in self._sessions.values())
        return lease.exclusive and any(
            each is not None and (each.volume, each.fence) == place for each in known
        )

    def _check_room(self, caller: Caller) -> None:
        if caller.sessions_max:
            own = sum(session.request.caller.owner == caller.owner for session in self._sessions.values())
            if own >= caller.sessions_max:
                raise Refusal(
                    RefusalReason.BUSY,
                    f"{own} sessions of this ticket are open already; close some.",
                    retry_seconds=10,
                    quota=f"[listen] sessions = {caller.sessions_max}",
                )
        sessions_max = self._services.config.daemon.sessions
        if len(self._sessions) >= sessions_max:
            raise Refusal(
                RefusalReason.BUSY,
                f"{sessions_max} sessions are open already; close some. "
                f"To allow more: {set_command(('daemon', 'sessions'), str(2 * sessions_max))}",
                retry_seconds=10,
                quota=f"[daemon] sessions = {sessions_max}",
            )

    def _drop_endings(self) -> None:
        """Make room in memory: drop what is kept for repeated call ids."""
        for session in list(self._sessions.values()):
            session.idempotency.drop_endings()
            session.retention.count()

    def _refuse_if_draining(self) -> None:
        if self.draining:
            raise self.draining_refusal()

    def draining_refusal(self) -> Refusal:
        """Why nothing new begins while the daemon drains."""
        if self.drained is None:
            return Refusal(
                RefusalReason.DRAINING, "the daemon is stopping; connect again in a moment.", retry_seconds=1
            )
        return Refusal(
            RefusalReason.DRAINING,
            f"an operator drains the daemon, and it accepts no calls{self.drained and ': '}{self.drained}\n"
            "  To have it accept calls again: toolcell drain --off",
            retry_seconds=10,
        )

    def _turn(self, *, draining: bool, deadline_seconds: float = 0.0) -> None:
        self.draining = draining
        for session in self.all:
            session.draining = draining
        if draining:
            self.move(self.drained or "", deadline_seconds)
        self.turned.set()
        self.turned = asyncio.Event()

    def move(self, reason: str, deadline_seconds: float = 0.0) -> int:
        """Tell the placed sessions to move to another machine; returns how many they are.

        Args:
            reason: Why, for people.
            deadline_seconds: What running calls have; default: 0, as long as they take.
        """
        placed = [session for session in self.all if session.request.caller.lease is not None]
        for session in placed:
            session.outbox.put(events.Moving(reason=reason, deadline_seconds=deadline_seconds))
        return len(placed)

    def hold(self, reason: str | None) -> None:
        """Refuse new sessions and calls for this reason, which may be empty; with None accept them again."""
        self.drained = reason
        self._turn(draining=reason is not None)

    def resume(self, session_id: str, secret: str, caller: Caller) -> Session | None:
        """Return the session of a resume token, or None if its id is unknown. Raises `Refusal` for a wrong secret."""
        session = self._own(session_id, caller)
        if (
            session is not None
            and caller.lease is not None
            and is_older(session.request.caller.lease, caller.lease)
        ):
            return None  # `open` ends it first
        if session is not None and session.lease is not None:
            session.lease.renew()  # which ends it where this word comes too late
        if session is None or session.state in (SessionState.CLOSING, SessionState.CLOSED):
            return None
        if not secret:
            raise _exists(session_id)
        self.check(session, secret, "open.resume_token")
        if session.lease is not None:
            session.lease.expires = caller.expires
        return session

    def get(self, session_id: str, secret: str, caller: Caller) -> Session:
        """Return the session with this secret. Raises `Refusal`."""
        session = self._own(session_id, caller)
        if session is None:
            raise Refusal(
                RefusalReason.UNKNOWN_SESSION, f"there is no session {session_id[:64]!r}.", field="session_id"
            )
        return self.check(session, secret, "resume_token")

    def _own(self, session_id: str, caller: Caller) -> Session | None:
        """Return a session, unless it is another owner's: for this caller there is no such session."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.request.caller.owner == caller.owner else None

    @staticmethod
    def check(session: Session, secret: str, field: str) -> Session:
        """Return the session if the secret is right, else None."""
        digest = hashlib.sha256(secret.encode(errors="replace")).digest()
        if not hmac.compare_digest(digest, session.secret_digest):
            raise Refusal(
                RefusalReason.WRONG_TOKEN, f"that is not the token of session {session.id}.", field=field
            )
        return session

    def find_call(self, beginning: str) -> list[tuple[Session, str]]:
        """Return the running calls whose id starts with a prefix."""
        return [
            (session, call_id)
            for session in self._sessions.values()
            for call_id in session.calls
            if call_id == beginning or (beginning and call_id.startswith(beginning))
        ]

    def call(self, call_id: str, owner: str) -> Call | None:
        """Return an owner's running call with this id; ids are unique per session, so the oldest session wins."""
        own = (session for session in self._sessions.values() if session.request.caller.owner == owner)
        found = (session.calls.get(call_id) for session in own)
        return next((call for call in found if call is not None), None)

    def on_worker_changed(self, worker: Worker) -> None:
        """Follow the state of a worker: watch its limits while it loads, and look at its project when it exits."""
        match worker.state:
            case WorkerState.STARTING:
                self.limit_monitor.watch(worker)
            case WorkerState.STOPPING:
                self.projects.before_exit(worker)
            case WorkerState.DEAD:
                self.projects.after_exit(worker)
                if (session := self._sessions.get(worker.spec.owner)) is not None:
                    session.on_worker_lost(worker)
            case _:
                pass

    def prepare(self, path: str, text: str) -> None:
        """Tell the calls that wait for a tool file what is done for its packages; see `Session.prepare`."""
        for session in self.all:
            session.prepare(path, text)

    def reconsider(self) -> None:
        """Withdraw the open questions about calls that the rules no longer allow."""
        for session in self.all:
            session.reconsider()

    def on_closed(self, session: Session) -> None:
        """Forget a session."""
        self._sessions.pop(session.id, None)
        self._services.happenings.publish(OperatorEvent("session.closed", session_id=session.id))
        if not self._sessions:
            self._emptied.set()

    async def drain(self, wait_seconds: float) -> None:
        """Refuse new calls, wait for running ones at most the given seconds, then close all sessions."""
        self.drained = None
        self._turn(draining=True, deadline_seconds=wait_seconds)
        if wait_seconds > 0:
            deadline = asyncio.get_running_loop().time() + wait_seconds
            for session in self.all:
                for call in [call for call in session.calls.values() if call.plan is not None]:
                    left = deadline - asyncio.get_running_loop().time()
                    if left > 0:
                        await asyncio.wait([call.done], timeout=left)
        for session in self.all:
            session.close(Stop(Kind.ABORTED, "daemon_stopping", "the daemon is stopping"))
        await self._emptied.wait()


def _exists(session_id: str) -> Refusal:
    return Refusal(
        RefusalReason.SESSION_EXISTS,
        f"session {session_id} exists; show its resume token.",
        field="open.resume_token",
    )
