"""Every state that a worker, a call, a session, the daemon or a tool's file can be in, and every way from one to the next.

Nothing outside this file assigns a state. The lookup is the validation: an event that cannot
happen in a state raises, with the story of how the machine got there, because it is a bug of
ours and never a tool's. Terminal states stand in their tables with what may still arrive.

Two properties carry the design. A worker may die in every state but DEAD. And a worker that
was asked to abort becomes IDLE in one way only: it SETTLED, which the pool fires for a
session's own worker that confirmed the abort itself and whose keeper then saw the cell empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Final, Generic, TypeVar

__all__ = [
    "CALL",
    "DAEMON",
    "HEALTH",
    "SESSION",
    "WORKER",
    "CallEvent",
    "CallState",
    "DaemonEvent",
    "DaemonState",
    "HealthEvent",
    "HealthState",
    "InvalidTransition",
    "Machine",
    "SessionEvent",
    "SessionState",
    "WorkerEvent",
    "WorkerState",
]  # fmt: skip


class WorkerState(StrEnum):
    STARTING = auto()
    IDLE = auto()
    BUSY = auto()
    LAST = auto()  # busy, and it goes when the call has ended
    ABORTING = auto()
    ENDING = auto()  # aborting, and it goes whatever the worker says
    STOPPING = auto()
    DEAD = auto()


class WorkerEvent(StrEnum):
    HELLO = auto()  # it has loaded its file and said so
    LEASE = auto()  # a call took it
    DONE = auto()  # the call ended, and nothing of it is left
    SPENT = auto()  # the call ended, and the worker must not be used again
    SETTLED = auto()  # the abort was confirmed in an empty cell, and the worker holds a session's state
    ABORT = auto()  # somebody wants the call gone
    RETIRE = auto()  # idle too long, worn out, out of date, or the daemon drains
    EXIT = auto()  # the cell was seen empty


WORKER: Final[Mapping[WorkerState, Mapping[WorkerEvent, WorkerState]]] = {
    WorkerState.STARTING: {
        WorkerEvent.HELLO: WorkerState.IDLE,
        WorkerEvent.RETIRE: WorkerState.STOPPING,
        WorkerEvent.EXIT: WorkerState.DEAD,
    },
    WorkerState.IDLE: {
        WorkerEvent.LEASE: WorkerState.BUSY,
        WorkerEvent.RETIRE: WorkerState.STOPPING,
        WorkerEvent.EXIT: WorkerState.DEAD,
    },
    WorkerState.BUSY: {
        WorkerEvent.DONE: WorkerState.IDLE,
        WorkerEvent.SPENT: WorkerState.STOPPING,
        WorkerEvent.ABORT: WorkerState.ABORTING,
        WorkerEvent.RETIRE: WorkerState.LAST,
        WorkerEvent.EXIT: WorkerState.DEAD,
    },
    WorkerState.LAST: {
        WorkerEvent.DONE: WorkerState.STOPPING,
        WorkerEvent.SPENT: WorkerState.STOPPING,
        WorkerEvent.ABORT: WorkerState.ENDING,
        WorkerEvent.RETIRE: WorkerState.LAST,
        WorkerEvent.EXIT: WorkerState.DEAD,
    },
    WorkerState.ABORTING: {
        WorkerEvent.SETTLED: WorkerState.IDLE,
        WorkerEvent.SPENT: WorkerState.STOPPING,
        WorkerEvent.ABORT: WorkerState.ABORTING,
        WorkerEvent.RETIRE: WorkerState.ENDING,
        WorkerEvent.EXIT: WorkerState.DEAD,
    },
    WorkerState.ENDING: {
        WorkerEvent.SETTLED: WorkerState.STOPPING,
        WorkerEvent.SPENT: WorkerState.STOPPING,
        WorkerEvent.ABORT: WorkerState.ENDING,
        WorkerEvent.RETIRE: WorkerState.ENDING,
        WorkerEvent.EXIT: WorkerState.DEAD,
    },
    WorkerState.STOPPING: {
        WorkerEvent.HELLO: WorkerState.STOPPING,
        WorkerEvent.ABORT: WorkerState.STOPPING,
        WorkerEvent.RETIRE: WorkerState.STOPPING,
        WorkerEvent.EXIT: WorkerState.DEAD,
    },
    WorkerState.DEAD: {
        WorkerEvent.RETIRE: WorkerState.DEAD,
    },
}


class CallState(StrEnum):
    WAITING = auto()  # for its tool's description, a place or a worker
    RUNNING = auto()
    ASKING = auto()  # as RUNNING, while a question is open: it has its worker, and neither clocks nor a place
    ABORTING = auto()
    SETTLING = auto()  # the worker reported or is gone; whether its cell is empty is being found out
    CLOSING = auto()  # without a worker; what is kept of its output is being written
    ENDED = auto()


class CallEvent(StrEnum):
    LEASED = auto()  # a worker has it
    REFUSED = auto()  # no worker will have it
    ASKED = auto()  # its first open question
    ANSWERED = auto()  # the last open question has its answer
    ABORT = auto()  # a person, a clock, a limit, or the end of the session
    REPORTED = auto()  # the worker said how it ended
    LOST = auto()  # the worker is gone
    LEFT = auto()  # the worker was given back, or its cell is empty
    JUDGED = auto()  # there is an outcome
    FAILED = auto()  # a bug of ours


CALL: Final[Mapping[CallState, Mapping[CallEvent, CallState]]] = {
    CallState.WAITING: {
        CallEvent.LEASED: CallState.RUNNING,
        CallEvent.REFUSED: CallState.ENDED,
        CallEvent.ABORT: CallState.ENDED,
        CallEvent.FAILED: CallState.ENDED,
    },
    CallState.RUNNING: {
        CallEvent.ASKED: CallState.ASKING,
        CallEvent.ABORT: CallState.ABORTING,
        CallEvent.REPORTED: CallState.SETTLING,
        CallEvent.LOST: CallState.SETTLING,
        CallEvent.FAILED: CallState.ENDED,
    },
    CallState.ASKING: {
        CallEvent.ANSWERED: CallState.RUNNING,
        CallEvent.REPORTED: CallState.SETTLING,
        CallEvent.LOST: CallState.SETTLING,
        CallEvent.FAILED: CallState.ENDED,
    },
    CallState.ABORTING: {
        CallEvent.REPORTED: CallState.SETTLING,
        CallEvent.LOST: CallState.SETTLING,
        CallEvent.FAILED: CallState.ENDED,
    },
    CallState.SETTLING: {
        CallEvent.LEFT: CallState.CLOSING,
        CallEvent.FAILED: CallState.ENDED,
    },
    CallState.CLOSING: {
        CallEvent.JUDGED: CallState.ENDED,
        CallEvent.FAILED: CallState.ENDED,
    },
    CallState.ENDED: {},
}


class SessionState(StrEnum):
    OPEN = auto()
    DETACHED = auto()  # no stream; the linger runs
    CLOSING = auto()  # refuses new calls, aborts the running ones
    CLOSED = auto()


class SessionEvent(StrEnum):
    ATTACH = auto()  # a stream showed the token
    DETACH = auto()  # the stream broke
    CLOSE = auto()  # the client wants it, the linger is over, or the daemon drains
    EMPTY = auto()  # the last call of a closing session ended


SESSION: Final[Mapping[SessionState, Mapping[SessionEvent, SessionState]]] = {
    SessionState.OPEN: {
        SessionEvent.ATTACH: SessionState.OPEN,
        SessionEvent.DETACH: SessionState.DETACHED,
        SessionEvent.CLOSE: SessionState.CLOSING,
    },
    SessionState.DETACHED: {
        SessionEvent.ATTACH: SessionState.OPEN,
        SessionEvent.CLOSE: SessionState.CLOSING,
    },
    SessionState.CLOSING: {
        SessionEvent.DETACH: SessionState.CLOSING,
        SessionEvent.CLOSE: SessionState.CLOSING,
        SessionEvent.EMPTY: SessionState.CLOSED,
    },
    SessionState.CLOSED: {
        SessionEvent.DETACH: SessionState.CLOSED,
        SessionEvent.CLOSE: SessionState.CLOSED,
    },
}


class DaemonState(StrEnum):
    STARTING = auto()
    SERVING = auto()
    DRAINING = auto()  # refuses new calls, waits for the running ones, then aborts them
    STOPPED = auto()


class DaemonEvent(StrEnum):
    BOUND = auto()  # the socket answers
    DRAIN = auto()  # a signal, the end of the owner, or idle too long
    GONE = auto()  # every session is closed and every cell is empty


DAEMON: Final[Mapping[DaemonState, Mapping[DaemonEvent, DaemonState]]] = {
    DaemonState.STARTING: {
        DaemonEvent.BOUND: DaemonState.SERVING,
        DaemonEvent.DRAIN: DaemonState.DRAINING,
    },
    DaemonState.SERVING: {
        DaemonEvent.DRAIN: DaemonState.DRAINING,
    },
    DaemonState.DRAINING: {
        DaemonEvent.DRAIN: DaemonState.DRAINING,
        DaemonEvent.GONE: DaemonState.STOPPED,
    },
    DaemonState.STOPPED: {},
}


class HealthState(StrEnum):
    SOUND = auto()
    AILING = auto()  # its workers died, and no call has ended well since
    QUARANTINED = auto()  # no worker is started for it


class HealthEvent(StrEnum):
    DIED = auto()  # a worker, of its tool
    DIED_TOO_OFTEN = auto()  # as DIED, and once too often
    SERVED = auto()  # a call ended as calls should
    RELEASED = auto()  # an operator wants it back


HEALTH: Final[Mapping[HealthState, Mapping[HealthEvent, HealthState]]] = {
    HealthState.SOUND: {
        HealthEvent.DIED: HealthState.AILING,
        HealthEvent.SERVED: HealthState.SOUND,
    },
    HealthState.AILING: {
        HealthEvent.DIED: HealthState.AILING,
        HealthEvent.DIED_TOO_OFTEN: HealthState.QUARANTINED,
        HealthEvent.SERVED: HealthState.SOUND,
    },
    HealthState.QUARANTINED: {
        # Calls that ran already when it was shut out, whatever becomes of them.
        HealthEvent.DIED: HealthState.QUARANTINED,
        HealthEvent.DIED_TOO_OFTEN: HealthState.QUARANTINED,
        HealthEvent.SERVED: HealthState.QUARANTINED,
        HealthEvent.RELEASED: HealthState.SOUND,
    },
}


S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class InvalidTransition(Exception):
    """A bug in the daemon, never in a tool: the event cannot happen in this state."""


STORY_EVENTS_MAX = 32
"""Enough for every event of one call's life, many times over."""


class Machine(Generic[S, E]):
    """One state, one table, and the recent story of how it got here."""

    __slots__ = ("_table", "state", "story")

    def __init__(self, table: Mapping[S, Mapping[E, S]], initial: S) -> None:
        self._table = table
        self.state = initial
        self.story: deque[E] = deque(maxlen=STORY_EVENTS_MAX)

    def fire(self, event: E) -> S:
        """Move to the next state, or raise `InvalidTransition` with the story so far."""
        try:
            target = self._table[self.state][event]
        except KeyError:
            history = ", ".join(self.story) or "nothing"
            raise InvalidTransition(f"{event} while {self.state}, after {history}") from None
        self.story.append(event)
        self.state = target
        return target

    def __repr__(self) -> str:
        return f"<{self.state.upper()} after {', '.join(self.story) or 'nothing'}>"
