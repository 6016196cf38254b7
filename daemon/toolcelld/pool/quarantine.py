"""Quarantine and start backoff for tool files whose workers crash repeatedly.

A crash counts if the tool caused it, also by passing a limit: see `Worker.crash_cause`. It counts only if its worker
was started after the last crash that counted: concurrent crashes count once, because only repeated starts and crashes
make a crash loop.

The first crash causes no wait. Each further one, without a successful call in between, makes the wait before the next
start longer, with full jitter so that several files are not restarted at the same time. The wait is drawn once for
each crash that counts. A file with `DEATHS_MAX` crashes within `WITHIN_SECONDS` is quarantined: its calls are refused
with the evidence, until an operator releases it or its code changes. An operator can put a file there, too.

    SOUND ──death──▶ AILING ──too often──▶ QUARANTINED
      ▲───call ended──┘                        │
      ▲──────────────── released ──────────────┘

The server of a file may also end between its calls, which fails none of them. That is no crash and no way into quarantine,
but each further time that it ran only shortly makes the wait longer in the same way, whatever its calls were.

Records are kept by the digest, which covers the code and the modules next to it, so changed code has no record. A file
that is SOUND has no record. A successful call clears the count, because a tool that works for one caller is not in a
crash loop, even if the calls of another one crash it. It does so too where the code has changed between crash and success:
code that comes back begins anew, unless it is in quarantine.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.lifecycle import HEALTH, HealthEvent, HealthState, StateMachine

BACKOFF_SECONDS: Final = (0.0, 0.1, 0.5, 2.0, 10.0, 30.0)
"""The longest wait, by the number of crashes in a row; the last one applies to all further crashes."""
LASTED_SECONDS: Final = 60.0
"""A server that ran so long before it ended between calls is started again at once."""
DEATHS_MAX: Final = 5
WITHIN_SECONDS: Final = 300.0
"""Five in five minutes: systemd's default of five starts, over the time in which an agent retries."""
FILES_MAX: Final = 1000
"""Records; the one without a crash for the longest time is evicted first, and one in quarantine last."""
STDERR_CHARACTERS_MAX: Final = 1000
"""Of each crash: a few lines of a traceback."""


@dataclass(frozen=True, slots=True)
class CrashEvidence:
    """One crash of a worker that its tool caused."""

    time: float  # since the epoch, for display
    cause: str  # "SIGSEGV", "exit 3", "protocol", "deadline", "memory"
    stderr: str  # the last lines


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A file in quarantine, and why."""

    path: str
    stem: str
    since: float
    deaths: tuple[CrashEvidence, ...]
    by: str = ""  # who put it there and why, if not crashes

    def __str__(self) -> str:
        if self.by:
            return self.by
        causes = Counter(death.cause for death in self.deaths)
        cause_counts = ", ".join(f"{cause} ({count})" for cause, count in causes.most_common())
        span = self.deaths[-1].time - self.deaths[0].time
        return f"{len(self.deaths)} workers crashed in a row within {max(span, 0):.1f} s: {cause_counts}"


class _Health(StateMachine[HealthState, HealthEvent]):
    table = HEALTH
    state = HealthState.SOUND


@dataclass(slots=True)
class _Record:
    file: ToolFile
    machine: _Health = field(default_factory=_Health)
    in_a_row: int = 0
    not_before: float = 0.0  # by the clock
    since: float = 0.0
    by: str = ""
    when: deque[float] = field(default_factory=lambda: deque[float](maxlen=DEATHS_MAX))  # by the clock
    deaths: deque[CrashEvidence] = field(default_factory=lambda: deque[CrashEvidence](maxlen=DEATHS_MAX))

    def snapshot(self) -> Quarantined:
        return Quarantined(self.file.path, self.file.stem, self.since, tuple(self.deaths), self.by)


class Quarantine:
    """The records of all files that are not SOUND.

    Args:
        clock: Returns the time in seconds; monotonic by default.
        jitter: Draws a wait between two bounds, in seconds; uniform by default.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self.records: dict[str, _Record] = {}
        """By digest, the latest crash last."""
        self._ailing: dict[str, str] = {}
        """By path the digest of the record that is AILING: of the code that crashed last."""
        self._lapses: dict[str, tuple[int, float]] = {}
        """By digest: how often a server has ended between calls in a row, and when it may be started again."""

    # Events

    def died(self, file: ToolFile, cause: str, stderr: str, *, started: float) -> bool:
        """Record a crash that the tool caused.

        Args:
            file: The tool file of the worker.
            cause: The signal, the exit status or the limit.
            stderr: The last lines that the worker printed.
            started: When the worker was started, by the clock.

        Returns:
            Whether the file is in quarantine because of this crash.
        """
        existing = self.records.get(file.digest)
        if existing is not None and existing.when and started < existing.when[-1]:
            return False  # it ran at the time of the last crash: they count once
        record = self.records.pop(file.digest, None) or _Record(file)
        self._evict()
        self.records[file.digest] = record
        now = self._clock()
        record.deaths.append(CrashEvidence(time.time(), cause, stderr.strip()[-STDERR_CHARACTERS_MAX:]))
        record.when.append(now)
        record.in_a_row += 1
        delay_max = BACKOFF_SECONDS[min(record.in_a_row, len(BACKOFF_SECONDS)) - 1]
        record.not_before = now + self._jitter(0.0, delay_max)
        state_before = record.machine.state
        too_often = len(record.when) == DEATHS_MAX and now - record.when[0] <= WITHIN_SECONDS
        record.machine.fire(HealthEvent.DIED_TOO_OFTEN if too_often else HealthEvent.DIED)
        self._follow(record)
        if record.machine.state is state_before or record.machine.state is not HealthState.QUARANTINED:
            return False
        record.since = time.time()
        return True

    def lapsed(self, file: ToolFile, *, started: float) -> None:
        """Record that a server has ended between calls.

        Args:
            file: Its entry.
            started: When its worker was started, by the clock.
        """
        now = self._clock()
        before, _ = self._lapses.pop(file.digest, (0, 0.0))
        count = 1 if now - started >= LASTED_SECONDS else before + 1
        delay_max = BACKOFF_SECONDS[min(count, len(BACKOFF_SECONDS)) - 1]
        self._lapses[file.digest] = count, now + self._jitter(0.0, delay_max)
        if len(self._lapses) > FILES_MAX:
            del self._lapses[next(iter(self._lapses))]

    def served(self, file: ToolFile) -> None:
        """Record a successful call, of the code that crashed or of what the file has been changed to since."""
        if (digest := self._ailing.pop(file.path, None)) is not None:
            self.records.pop(digest).machine.fire(HealthEvent.SERVED)

    def shut_out(self, file: ToolFile, by: str) -> Quarantined:
        """Put a file into quarantine; `by` says who did and why."""
        record = self.records.get(file.digest)
        if record is None:
            self._evict()
            record = self.records[file.digest] = _Record(file)
        if record.machine.state is not HealthState.QUARANTINED:
            record.since = time.time()
        record.machine.fire(HealthEvent.SHUT_OUT)
        self._follow(record)
        record.by = by
        return record.snapshot()

    def release(self, names: Collection[str], digests: Collection[str] = ()) -> list[Quarantined]:
        """Release the quarantined files with one of these paths, stems or digests, and return them."""
        released = [
            record
            for record in self._held
            if {record.file.path, record.file.stem} & {*names} or record.file.digest in digests
        ]
        for record in released:
            record.machine.fire(HealthEvent.RELEASED)
            del self.records[record.file.digest]
        return [record.snapshot() for record in released]

    # Consequences

    def wait_seconds(self, file: ToolFile) -> float:
        """Return how long to wait before a worker is started for the file; 0 without a record."""
        record = self.records.get(file.digest)
        _, not_before = self._lapses.get(file.digest, (0, 0.0))
        if record is not None:
            not_before = max(not_before, record.not_before)
        return max(0.0, not_before - self._clock()) if not_before else 0.0

    def holds(self, file: ToolFile) -> bool:
        """Return whether the file is in quarantine."""
        record = self.records.get(file.digest)
        return record is not None and record.machine.state is HealthState.QUARANTINED

    def check(self, file: ToolFile) -> None:
        """Raise a `Refusal` if the file is in quarantine."""
        if self.holds(file):
            raise _refusal(self.records[file.digest].snapshot())

    @property
    def all(self) -> list[Quarantined]:
        """The files in quarantine, the earliest first."""
        return sorted((record.snapshot() for record in self._held), key=lambda file: file.since)

    @property
    def digests(self) -> list[str]:
        """The digests of the files in quarantine."""
        return [record.file.digest for record in self._held]

    @property
    def _held(self) -> list[_Record]:
        return [record for record in self.records.values() if record.machine.state is HealthState.QUARANTINED]

    def _follow(self, record: _Record) -> None:
        """Note which code of a file is AILING; what was before is forgotten, as it is no more."""
        path, digest = record.file.path, record.file.digest
        former = self._ailing.get(path)
        if record.machine.state is HealthState.AILING:
            self._ailing.pop(path, None)
            self._ailing[path] = digest  # the latest crash last
            if former is not None and former != digest:
                del self.records[former]
        elif former == digest:
            del self._ailing[path]

    def _evict(self) -> None:
        if len(self.records) < FILES_MAX:
            return
        oldest = next(iter(self._ailing.values()), None) or next(iter(self.records))
        self._ailing.pop(self.records.pop(oldest).file.path, None)


def _refusal(quarantined: Quarantined) -> Refusal:
    since = time.strftime("%H:%M:%S", time.localtime(quarantined.since))
    stderr = "" if quarantined.by else quarantined.deaths[-1].stderr
    last = [line[:200] for line in stderr.splitlines() if line.strip()][-3:]
    return Refusal(
        RefusalReason.QUARANTINED,
        "\n".join(
            [
                f"{quarantined.path} is in quarantine since {since}: {quarantined}.",
                *last,
                f"It comes back when its code is changed, or by: toolcell release {quarantined.stem}",
            ]
        ),
    )
