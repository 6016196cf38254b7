"""Keeps the last lines of the tools' output and logs, and of the daemon's own log, in memory.

Readers that follow the log have bounded queues; a reader that is too slow loses the oldest lines and gets their number.

What clients and tools cause writes only so many lines: of each kind of record, which is the line of code that makes it,
`KIND_LINES_MAX` pass in a minute, and of the rest their number, when the minute is over.

A record of the daemon's own log is one line: file names, hosts and the texts of exceptions come from projects and
tools, and a newline in them would look like another record to a reader of the log or to the journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Generic, Self, TypeVar, cast

from toolcell._printable import printable

logger = logging.getLogger(__name__)

DECISION: Final = "decision."
"""What the types of a person's decisions begin with."""
LINES_MAX: Final = 10_000
BYTES_MAX: Final = 4 * 1024 * 1024
QUEUE_MAX: Final = 1000
TEXT_CHARACTERS_MAX: Final = 16 * 1024
KIND_LINES_MAX: Final = 60
"""Of one kind in a window: what a person reads of it, and a hundredth of what a loop of refused requests makes."""
WINDOW_SECONDS: Final = 60.0
FIELDS: Final = ("toolcell_call", "toolcell_tool", "toolcell_session", "toolcell_worker")
"""What a record may be about: the attributes that `about` sets, which are fields of the journal in capitals."""
TRACEBACK_LINES_MAX: Final = 50
"""Of the end of one; below `KIND_LINES_MAX`."""
LEVELS: Final = ("debug", "info", "warning", "error")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log record, or one piece of output."""

    time: float
    source: str  # "log", "stdout", "stderr", "daemon"
    level: str
    text: str
    tool: str = ""
    call_id: str = ""
    worker_id: str = ""

    def about(self, tool_or_call: str) -> bool:
        """Return whether it belongs to a tool or a call; always true for an empty name."""
        return not tool_or_call or tool_or_call in (self.tool, self.call_id)


@dataclass(frozen=True, slots=True)
class OperatorEvent:
    """Something that happened in the daemon, for who watches."""

    type: str
    time: float = field(default_factory=time.time)
    session_id: str = ""
    call_id: str = ""
    worker_id: str = ""
    tool: str = ""
    message: str = ""
    details: Mapping[str, str] = field(default_factory=dict[str, str])  # further texts, by their names
    about: object = None  # what it is about, for readers in this process


def about(*, call: str = "", tool: str = "", session: str = "", worker: str = "") -> dict[str, str]:
    """Return what a record is about, for the argument `extra` of a logger."""
    return dict(zip(FIELDS, (call, tool, session, worker), strict=True))


class Broadcast(Generic[T]):
    """Sends each published item to all current readers."""

    def __init__(self) -> None:
        self.readers: set[_Subscription[T]] = set()
        """Those who follow now."""
        self.keep: Callable[[T], object] | None = None
        """Gets each item besides, as the records do; it must not block."""
        self.dropped = 0
        """Items that readers have missed."""

    def publish(self, item: T) -> None:
        """Queue an item for every reader; never blocks."""
        if self.keep is not None:
            self.keep(item)
        for reader in list(self.readers):
            self.dropped += reader.put(item)

    @contextmanager
    def follow(self) -> Generator[AsyncIterator[tuple[T, int]]]:
        """Yield an iterator of every item from now on, with the number of items that were lost before it."""
        reader: _Subscription[T] = _Subscription()
        self.readers.add(reader)
        try:
            yield reader
        finally:
            self.readers.discard(reader)


class _Subscription(Generic[T]):
    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._lost = 0
        self._ready = asyncio.Event()

    def put(self, item: T) -> bool:
        """Add an item; return whether the oldest one was dropped for it."""
        if full := len(self._items) >= QUEUE_MAX:
            self._items.popleft()
            self._lost += 1
        self._items.append(item)
        self._ready.set()
        return full

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[T, int]:
        while not self._items:
            self._ready.clear()
            await self._ready.wait()
        lost, self._lost = self._lost, 0
        return self._items.popleft(), lost


class EventLog:
    """The last lines, and a broadcast of new ones."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self.feed: Broadcast[LogLine] = Broadcast()

    def write(self, line: LogLine) -> None:
        """Add a line, and publish it; the oldest lines are dropped beyond the bounds."""
        self._lines.append(line)
        self._bytes += len(line.text)
        while len(self._lines) > LINES_MAX or self._bytes > BYTES_MAX:
            self._bytes -= len(self._lines.popleft().text)
        self.feed.publish(line)

    def last(self, count: int, tool_or_call: str = "", since: float = 0.0) -> list[LogLine]:
        """Return the last lines, the oldest first.

        Args:
            count: The largest number of lines.
            tool_or_call: The tool or call that they belong to; empty, the default, for all.
            since: The time of the oldest one, in seconds since 1970; default: 0.
        """
        lines: deque[LogLine] = deque(maxlen=count)
        lines.extend(line for line in self._lines if line.about(tool_or_call) and line.time >= since)
        return list(lines)


class OneLineFormatter(logging.Formatter):
    """Formats a record, with its traceback, as one line of bounded length; control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)[:TEXT_CHARACTERS_MAX]
        return printable(text, lines=False)[:TEXT_CHARACTERS_MAX]


class EventLogHandler(logging.Handler):
    """A logging handler that writes the daemon's records to the event log, from any thread.

    Args:
        event_log: Where the records are written.
        loop: The loop of the event log.
    """

    def __init__(self, event_log: EventLog, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.setFormatter(OneLineFormatter("%(message)s"))
        self._event_log = event_log
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        line = LogLine(time.time(), "daemon", record.levelname.lower(), self.format(record))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event_log.write, line)


@dataclass(slots=True)
class _Kind:
    """The records of one kind in the current window."""

    since: float
    passed: int = 0
    left_out: int = 0


class FloodFilter(logging.Filter):
    """Lets a bounded number of records of each kind pass, from any thread; one instance serves several handlers.

    Args:
        loop: Runs the timer after which the number of those that were left out is logged.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._lock = threading.Lock()
        # The mutable state, by logger, file and line: no more kinds than the code has lines that log.
        self._kinds: dict[tuple[str, str, int], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written; asked again about the same one, the same. Who asks for DEBUG gets all."""
        if record.levelno <= logging.DEBUG:
            return True
        known: bool | None = getattr(record, "passes", None)
        if known is None:
            known = self._passes(record)
            record.passes = known
        return known

    def _passes(self, record: logging.LogRecord) -> bool:
        key, now = (record.name, record.pathname, record.lineno), self._loop.time()
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None or (now - kind.since >= WINDOW_SECONDS and not kind.left_out):
                kind = self._kinds[key] = _Kind(now)
            if kind.passed < KIND_LINES_MAX:
                kind.passed += 1
                return True
            kind.left_out += 1
            if kind.left_out == 1 and not self._loop.is_closed():
                wait = max(0.0, kind.since + WINDOW_SECONDS - now)
                self._loop.call_soon_threadsafe(self._loop.call_later, wait, self._tell, key, record)
            return False

    def _tell(self, key: tuple[str, str, int], first: logging.LogRecord) -> None:
        """Log how many records of a kind were left out, as one that passes, and begin another window."""
        with self._lock:
            kind = self._kinds.pop(key)
        text = f"{kind.left_out} more records like this one were left out in the last minute: {first.getMessage()}"
        told = logging.LogRecord(first.name, first.levelno, first.pathname, first.lineno, text, (), None)
        told.passes = True
        logging.getLogger(first.name).handle(told)


class LogLevel:
    """The level of the daemon's own log, which an operator can set for a time.

    Args:
        happenings: The events of the daemon; with the level "debug" each is a record.
        tasks: Runs what waits for the end of that time.
    """

    def __init__(self, happenings: Broadcast[OperatorEvent], tasks: asyncio.TaskGroup) -> None:
        self._happenings = happenings
        self._tasks = tasks
        self._logger = logging.getLogger(__package__)
        self._timer: asyncio.TimerHandle | None = None
        self._follower: asyncio.Task[None] | None = None
        self.until: float | None = None
        """Unix time at which it is that of the start again; None if it is."""

    @property
    def name(self) -> str:
        """The level in force, as `LEVELS` has it."""
        return logging.getLevelName(self._logger.getEffectiveLevel()).lower()

    def set(self, level: str, seconds: float) -> float:
        """Set it for a time, which replaces the one before. Return the Unix time of its end."""
        self.close()
        self._logger.setLevel(level.upper())
        if level == "debug":
            self._follower = self._tasks.create_task(self._follow())
        self._timer = asyncio.get_running_loop().call_later(seconds, self.close)
        self.until = time.time() + seconds
        return self.until

    def close(self) -> None:
        """Set it as it was at the start."""
        self._logger.setLevel(logging.NOTSET)
        self.until = None
        for waiting in (self._timer, self._follower):
            if waiting is not None:
                waiting.cancel()

    async def _follow(self) -> None:
        with self._happenings.follow() as happenings:
            async for happening, lost in happenings:
                if lost:
                    logger.debug("%d events were lost", lost)
                ids = (happening.session_id, happening.call_id, happening.worker_id, happening.tool)
                fields = about(
                    session=happening.session_id,
                    call=happening.call_id,
                    worker=happening.worker_id,
                    tool=happening.tool,
                )
                text = " ".join(filter(None, (happening.type, *ids, happening.message)))
                logger.debug("%s", text, extra=fields)


def log_place(environment: Mapping[str, str]) -> str:
    """Return where this process's standard error goes.

    Args:
        environment: The variables that the process was started with.

    Returns:
        The path of a file, "journal" for the journal of systemd, or "" for everything else, such as a terminal.
    """
    try:
        found = os.fstat(2)
        if environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}":
            return "journal"
        return os.readlink("/proc/self/fd/2") if stat.S_ISREG(found.st_mode) else ""
    except OSError:
        return ""


def log_uncaught_exceptions() -> None:
    """Log exceptions that end this process or a thread, or that nothing can catch, instead of printing them.

    One that ends the process is a record for each line of its traceback, as people read it in the log: the cause first.
    """

    def uncaught(kind: type[BaseException], error: BaseException, found: TracebackType | None) -> None:
        cause = error
        while isinstance(cause, BaseExceptionGroup):
            cause = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
        logger.critical("The process ends by %s", "".join(traceback.format_exception_only(cause)).strip())
        lines = "".join(traceback.format_exception(kind, error, found)).splitlines()
        for line in lines[-TRACEBACK_LINES_MAX:]:
            logger.critical("  %s", line)

    def in_thread(found: threading.ExceptHookArgs) -> None:
        logger.critical("uncaught in a thread", exc_info=found.exc_value)

    def unraisable(found: sys.UnraisableHookArgs) -> None:
        logger.error("%s %r", found.err_msg or "ignored in", found.object, exc_info=found.exc_value)

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, in_thread, unraisable
