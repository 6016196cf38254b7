"""The state machines of workers, calls, sessions, the daemon and the health of tool files.

Only `StateMachine.fire` assigns a state. The lookup in the table is the validation: an event that is not possible in a
state raises `InvalidTransition` with the latest events, because it is a bug of the daemon and never of a tool. The
tables of terminal states have the events that may still arrive.

Two properties are essential. A worker may exit in every state except DEAD. And an aborted worker becomes IDLE only by
SETTLED, which the pool fires for a session's own worker if it has confirmed the abort and its keeper has then found
the cell empty.

A worker that takes several calls stays BUSY from the first to the last of them. An abort is one call's, and fires no ABORT:
where its process is replaced, RETIRE makes it LAST, so that it gets no further call.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum, auto
from typing import Final, Generic, TypeVar


class WorkerState(StrEnum):
    STARTING = auto()
    IDLE = auto()
    BUSY = auto()
    LAST = auto()  # busy, and retired when the call has ended
    ABORTING = auto()
    ENDING = auto()  # aborting, and retired in any case
    STOPPING = auto()
    DEAD = auto()


class WorkerEvent(StrEnum):
    HELLO = auto()  # it reported that its file is loaded
    LEASE = auto()  # a call took it
    JOIN = auto()  # a further call took a place in it
    LEFT = auto()  # one of several calls ended
    DONE = auto()  # the call ended without leftovers
    SPENT = auto()  # the call ended, and the worker must not be used again
    # The worker confirmed the abort, its cell has no other process, and it belongs to a session
    SETTLED = auto()
    ABORT = auto()  # the call is aborted
    RETIRE = auto()  # idle too long, used for too many calls, outdated, or the daemon drains
    EXIT = auto()  # the cell has ended


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
        WorkerEvent.JOIN: WorkerState.BUSY,
        WorkerEvent.LEFT: WorkerState.BUSY,
        WorkerEvent.DONE: WorkerState.IDLE,
        WorkerEvent.SPENT: WorkerState.STOPPING,
        WorkerEvent.ABORT: WorkerState.ABORTING,
        WorkerEvent.RETIRE: WorkerState.LAST,
        WorkerEvent.EXIT: WorkerState.DEAD,
    },
    WorkerState.LAST: {
        WorkerEvent.LEFT: WorkerState.LAST,
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
    WAITING_TOOL = auto()  # for its tool as it was saved
    WAITING_HOOKS = auto()  # for the hooks that run before it
    WAITING_PERMISSION = auto()  # for a person who is asked whether it may run
    WAITING_WORKER = auto()  # for a place and a worker
    RUNNING = auto()
    # As RUNNING, with an open question: it keeps its worker, its timers are paused, and it has no slot
    ASKING = auto()
    ABORTING = auto()
    SETTLING = auto()  # the worker reported or exited, and its cell is checked for leftover processes
    CLOSING = auto()  # without a worker; its spooled output is being written
    ENDED = auto()


class CallEvent(StrEnum):
    HOOKED = auto()  # hooks run before it
    REFERRED = auto()  # a rule has a person asked
    QUEUED = auto()  # no worker is idle, or its session has no place
    LEASED = auto()  # it has a worker
    REFUSED = auto()  # it will get no worker
    ASKED = auto()  # its first open question
    ANSWERED = auto()  # its last open question is answered
    ABORT = auto()  # by the client, a timer, a limit, or the end of the session
    REPORTED = auto()  # the worker reported its result
    LOST = auto()  # the worker exited
    DONE = auto()  # the worker reported its result, and was returned to the pool at once
    LEFT = auto()  # the worker was returned to the pool, or its cell is empty
    JUDGED = auto()  # there is an outcome
    FAILED = auto()  # a bug of the daemon


_FROM_WORKER: Final = {
    CallEvent.LEASED: CallState.RUNNING,
    CallEvent.REFUSED: CallState.ENDED,
    CallEvent.ABORT: CallState.ENDED,
    CallEvent.FAILED: CallState.ENDED,
}
_FROM_PERMISSION: Final = {**_FROM_WORKER, CallEvent.QUEUED: CallState.WAITING_WORKER}
_FROM_HOOKS: Final = {**_FROM_PERMISSION, CallEvent.REFERRED: CallState.WAITING_PERMISSION}

# A call waits for these in their order; what it need not wait for is passed over.
CALL: Final[Mapping[CallState, Mapping[CallEvent, CallState]]] = {
    CallState.WAITING_TOOL: {**_FROM_HOOKS, CallEvent.HOOKED: CallState.WAITING_HOOKS},
    CallState.WAITING_HOOKS: _FROM_HOOKS,
    CallState.WAITING_PERMISSION: _FROM_PERMISSION,
    CallState.WAITING_WORKER: _FROM_WORKER,
    CallState.RUNNING: {
        CallEvent.ASKED: CallState.ASKING,
        CallEvent.ABORT: CallState.ABORTING,
        CallEvent.REPORTED: CallState.SETTLING,
        CallEvent.LOST: CallState.SETTLING,
        CallEvent.DONE: CallState.CLOSING,
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
    DETACHED = auto()  # no stream; the linger timer runs
    CLOSING = auto()  # refuses new calls, aborts the running ones
    CLOSED = auto()


class SessionEvent(StrEnum):
    ATTACH = auto()  # a stream presented the token
    DETACH = auto()  # the stream broke
    CLOSE = auto()  # by the client, at the end of the linger, or because the daemon drains
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
    BOUND = auto()  # the socket accepts connections
    DRAIN = auto()  # by a signal, the exit of the owner, or idle too long
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
    AILING = auto()  # its workers crashed, without a successful call since
    QUARANTINED = auto()  # no worker is started for it


class HealthEvent(StrEnum):
    DIED = auto()  # a worker crashed because of its tool
    DIED_TOO_OFTEN = auto()  # as DIED, and the limit of crashes is reached
    SERVED = auto()  # a call was successful
    SHUT_OUT = auto()  # by an operator
    RELEASED = auto()  # by an operator


HEALTH: Final[Mapping[HealthState, Mapping[HealthEvent, HealthState]]] = {
    HealthState.SOUND: {
        HealthEvent.DIED: HealthState.AILING,
        HealthEvent.SERVED: HealthState.SOUND,
        HealthEvent.SHUT_OUT: HealthState.QUARANTINED,
    },
    HealthState.AILING: {
        HealthEvent.DIED: HealthState.AILING,
        HealthEvent.DIED_TOO_OFTEN: HealthState.QUARANTINED,
        HealthEvent.SERVED: HealthState.SOUND,
        HealthEvent.SHUT_OUT: HealthState.QUARANTINED,
    },
    HealthState.QUARANTINED: {
        # From calls that were running already when the file was quarantined.
        HealthEvent.DIED: HealthState.QUARANTINED,
        HealthEvent.DIED_TOO_OFTEN: HealthState.QUARANTINED,
        HealthEvent.SERVED: HealthState.QUARANTINED,
        HealthEvent.SHUT_OUT: HealthState.QUARANTINED,
        HealthEvent.RELEASED: HealthState.SOUND,
    },
}


S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class InvalidTransition(Exception):
    """An event that is not possible in this state: a bug in the daemon, never in a tool."""


EVENTS_MAX = 32
"""The latest events that are kept: several times as many as one call has."""


class StateMachine(Generic[S, E]):
    """The current state of one object, and its latest events. What has a state is a subclass with a table."""

    table: Mapping[S, Mapping[E, S]]
    """The transitions: state, event, next state; of the class."""
    state: S
    """Of the class, the first one."""
    events: tuple[E, ...] = ()
    """The latest ones, the newest last."""
    announced: AbstractSet[S] = frozenset()
    """The states of which `on_state` is called; of the class."""

    def fire(self, event: E) -> S:
        """Move to the next state and return it. Raises `InvalidTransition` with the latest events."""
        try:
            target = self.table[self.state][event]
        except KeyError:
            history = ", ".join(self.events) or "nothing"
            raise InvalidTransition(f"{event} while {self.state}, after {history}") from None
        self.events = self.events[1 - EVENTS_MAX :] + (event,)  # noqa: RUF005  # in two thirds of the time
        self.state = target
        if target in self.announced:
            self.on_state()
        return target

    def on_state(self) -> None:
        """It is in a state that is announced."""

    def __repr__(self) -> str:
        return f"<{self.state.upper()} after {', '.join(self.events) or 'nothing'}>"
