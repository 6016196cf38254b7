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
    "CALL", "DAEMON", "HEALTH", "SESSION", "WORKER", "Call", "CallEvent", "Daemon", "DaemonEvent", "Health",
    "HealthEvent", "InvalidTransition", "Machine", "Session", "SessionEvent", "Worker", "WorkerEvent",
]  # fmt: skip


class Worker(StrEnum):
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


WORKER: Final[Mapping[Worker, Mapping[WorkerEvent, Worker]]] = {
    Worker.STARTING: {
        WorkerEvent.HELLO: Worker.IDLE,
        WorkerEvent.RETIRE: Worker.STOPPING,
        WorkerEvent.EXIT: Worker.DEAD,
    },
    Worker.IDLE: {
        WorkerEvent.LEASE: Worker.BUSY,
        WorkerEvent.RETIRE: Worker.STOPPING,
        WorkerEvent.EXIT: Worker.DEAD,
    },
    Worker.BUSY: {
        WorkerEvent.DONE: Worker.IDLE,
        WorkerEvent.SPENT: Worker.STOPPING,
        WorkerEvent.ABORT: Worker.ABORTING,
        WorkerEvent.RETIRE: Worker.LAST,
        WorkerEvent.EXIT: Worker.DEAD,
    },
    Worker.LAST: {
        WorkerEvent.DONE: Worker.STOPPING,
        WorkerEvent.SPENT: Worker.STOPPING,
        WorkerEvent.ABORT: Worker.ENDING,
        WorkerEvent.RETIRE: Worker.LAST,
        WorkerEvent.EXIT: Worker.DEAD,
    },
    Worker.ABORTING: {
        WorkerEvent.SETTLED: Worker.IDLE,
        WorkerEvent.SPENT: Worker.STOPPING,
        WorkerEvent.ABORT: Worker.ABORTING,
        WorkerEvent.RETIRE: Worker.ENDING,
        WorkerEvent.EXIT: Worker.DEAD,
    },
    Worker.ENDING: {
        WorkerEvent.SETTLED: Worker.STOPPING,
        WorkerEvent.SPENT: Worker.STOPPING,
        WorkerEvent.ABORT: Worker.ENDING,
        WorkerEvent.RETIRE: Worker.ENDING,
        WorkerEvent.EXIT: Worker.DEAD,
    },
    Worker.STOPPING: {
        WorkerEvent.HELLO: Worker.STOPPING,
        WorkerEvent.ABORT: Worker.STOPPING,
        WorkerEvent.RETIRE: Worker.STOPPING,
        WorkerEvent.EXIT: Worker.DEAD,
    },
    Worker.DEAD: {
        WorkerEvent.RETIRE: Worker.DEAD,
    },
}


class Call(StrEnum):
    WAITING = auto()
    RUNNING = auto()
    ABORTING = auto()
    ENDED = auto()


class CallEvent(StrEnum):
    LEASED = auto()  # a worker has it
    REFUSED = auto()  # no worker will have it
    REPORTED = auto()  # the worker said how it ended
    LOST = auto()  # the worker is gone, or the call was taken from it
    ABORT = auto()  # a person, a clock, a limit, or the end of the session
    FAILED = auto()  # a bug of ours


CALL: Final[Mapping[Call, Mapping[CallEvent, Call]]] = {
    Call.WAITING: {
        CallEvent.LEASED: Call.RUNNING,
        CallEvent.REFUSED: Call.ENDED,
        CallEvent.ABORT: Call.ENDED,
        CallEvent.FAILED: Call.ENDED,
    },
    Call.RUNNING: {
        CallEvent.REPORTED: Call.ENDED,
        CallEvent.LOST: Call.ENDED,
        CallEvent.ABORT: Call.ABORTING,
        CallEvent.FAILED: Call.ENDED,
    },
    Call.ABORTING: {
        CallEvent.REPORTED: Call.ENDED,
        CallEvent.LOST: Call.ENDED,
        CallEvent.FAILED: Call.ENDED,
    },
    Call.ENDED: {},
}


class Session(StrEnum):
    OPEN = auto()
    DETACHED = auto()  # no stream; the linger runs
    CLOSING = auto()  # refuses new calls, aborts the running ones
    CLOSED = auto()


class SessionEvent(StrEnum):
    ATTACH = auto()  # a stream showed the token
    DETACH = auto()  # the stream broke
    CLOSE = auto()  # the client wants it, the linger is over, or the daemon drains
    EMPTY = auto()  # the last call of a closing session ended


SESSION: Final[Mapping[Session, Mapping[SessionEvent, Session]]] = {
    Session.OPEN: {
        SessionEvent.ATTACH: Session.OPEN,
        SessionEvent.DETACH: Session.DETACHED,
        SessionEvent.CLOSE: Session.CLOSING,
    },
    Session.DETACHED: {
        SessionEvent.ATTACH: Session.OPEN,
        SessionEvent.CLOSE: Session.CLOSING,
    },
    Session.CLOSING: {
        SessionEvent.DETACH: Session.CLOSING,
        SessionEvent.CLOSE: Session.CLOSING,
        SessionEvent.EMPTY: Session.CLOSED,
    },
    Session.CLOSED: {
        SessionEvent.DETACH: Session.CLOSED,
        SessionEvent.CLOSE: Session.CLOSED,
    },
}


class Daemon(StrEnum):
    STARTING = auto()
    SERVING = auto()
    DRAINING = auto()  # refuses new calls, waits for the running ones, then aborts them
    STOPPED = auto()


class DaemonEvent(StrEnum):
    BOUND = auto()  # the socket answers
    DRAIN = auto()  # a signal, the end of the owner, or idle too long
    GONE = auto()  # every session is closed and every cell is empty


DAEMON: Final[Mapping[Daemon, Mapping[DaemonEvent, Daemon]]] = {
    Daemon.STARTING: {
        DaemonEvent.BOUND: Daemon.SERVING,
        DaemonEvent.DRAIN: Daemon.DRAINING,
    },
    Daemon.SERVING: {
        DaemonEvent.DRAIN: Daemon.DRAINING,
    },
    Daemon.DRAINING: {
        DaemonEvent.DRAIN: Daemon.DRAINING,
        DaemonEvent.GONE: Daemon.STOPPED,
    },
    Daemon.STOPPED: {},
}


class Health(StrEnum):
    SOUND = auto()
    AILING = auto()  # its workers died, and no call has ended well since
    QUARANTINED = auto()  # no worker is started for it


class HealthEvent(StrEnum):
    DIED = auto()  # a worker, of its tool
    DIED_TOO_OFTEN = auto()  # as DIED, and once too often
    SERVED = auto()  # a call ended as calls should
    RELEASED = auto()  # an operator wants it back


HEALTH: Final[Mapping[Health, Mapping[HealthEvent, Health]]] = {
    Health.SOUND: {
        HealthEvent.DIED: Health.AILING,
        HealthEvent.SERVED: Health.SOUND,
    },
    Health.AILING: {
        HealthEvent.DIED: Health.AILING,
        HealthEvent.DIED_TOO_OFTEN: Health.QUARANTINED,
        HealthEvent.SERVED: Health.SOUND,
    },
    Health.QUARANTINED: {
        # Calls that ran already when it was shut out, whatever becomes of them.
        HealthEvent.DIED: Health.QUARANTINED,
        HealthEvent.DIED_TOO_OFTEN: Health.QUARANTINED,
        HealthEvent.SERVED: Health.QUARANTINED,
        HealthEvent.RELEASED: Health.SOUND,
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
            told = ", ".join(self.story) or "nothing"
            raise InvalidTransition(f"{event} while {self.state}, after {told}") from None
        self.story.append(event)
        self.state = target
        return target

    def __repr__(self) -> str:
        return f"<{self.state.upper()} after {', '.join(self.story) or 'nothing'}>"
