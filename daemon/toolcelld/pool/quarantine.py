"""Tool files whose workers die: how long to wait before another one, and when there is none any more.

A death counts where it was the tool's own doing, also by passing a limit: see `Worker.died_of`. It counts
only if its worker was started after the death that counted last. Workers that lived side by side make one
generation, and what ends all of them at once is one strike: it is coming back and dying again that makes a loop.

One death is an accident and costs no wait. Each further one, with no call that ended well in between, makes
the wait longer, with full jitter so that files that fell together do not rise together. The wait is drawn
once for each file and generation. A file whose workers died
`DEATHS_MAX` times within `WITHIN_SECONDS` is shut out: its calls are refused at once, with the
evidence, until an operator releases it or its code is another.

    SOUND ──death──▶ AILING ──too often──▶ QUARANTINED
      ▲───call ended──┘                        │
      ▲──────────────── released ──────────────┘

What is kept stands under the digest, which covers the code and what lies beside it: new code is
another file, and is sound. A file that is sound has no record. Why a call that ended well clears
the count: a tool that serves somebody is no crash loop, whatever one caller makes it do.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from toolcelld.catalog.sources import ToolFile
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.lifecycle import HEALTH, HealthEvent, HealthState, Machine

__all__ = ["BACKOFF_SECONDS", "DEATHS_MAX", "WITHIN_SECONDS", "CrashEvidence", "Quarantine", "Quarantined"]

BACKOFF_SECONDS: Final = (0.0, 0.1, 0.5, 2.0, 10.0, 30.0)
"""The longest wait after the first, the second … death in a row, the last for all that follow."""
DEATHS_MAX: Final = 5
WITHIN_SECONDS: Final = 300.0
"""Five in five minutes is systemd's habit of five starts, given the time in which an agent tries again."""
FILES_MAX: Final = 1000
"""Records of files; the one that was quiet longest gives way, and one in quarantine last."""
STDERR_CHARACTERS_MAX: Final = 1000
"""Of each death: some lines of a traceback."""


@dataclass(frozen=True, slots=True)
class CrashEvidence:
    """One death of a worker that was its tool's doing."""

    time: float  # since the epoch, for people
    cause: str  # "SIGSEGV", "exit 3", "protocol", "deadline", "memory"
    stderr: str  # the last lines


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A file that is shut out, and why."""

    path: str
    stem: str
    since: float
    deaths: tuple[CrashEvidence, ...]

    def __str__(self) -> str:
        causes = Counter(death.cause for death in self.deaths)
        cause_counts = ", ".join(f"{cause} ({count})" for cause, count in causes.most_common())
        span = self.deaths[-1].time - self.deaths[0].time
        return f"{len(self.deaths)} workers died one behind the other within {max(span, 0):.1f} s: {cause_counts}"


@dataclass(slots=True)
class _Record:
    file: ToolFile
    machine: Machine[HealthState, HealthEvent]
    in_a_row: int = 0
    not_before: float = 0.0  # by the clock
    since: float = 0.0
    when: deque[float] = field(default_factory=lambda: deque[float](maxlen=DEATHS_MAX))  # by the clock
    deaths: deque[CrashEvidence] = field(default_factory=lambda: deque[CrashEvidence](maxlen=DEATHS_MAX))

    def snapshot(self) -> Quarantined:
        return Quarantined(self.file.path, self.file.stem, self.since, tuple(self.deaths))


class Quarantine:
    """The records of files that are not sound; nothing else is kept."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._records: dict[str, _Record] = {}  # by digest, the one that died last at the end

    # What happened

    def died(self, file: ToolFile, cause: str, stderr: str, *, started: float) -> bool:
        """A worker that was started then, by the clock, died of its tool; whether that has brought the file into quarantine."""
        existing = self._records.get(file.digest)
        if existing is not None and started < existing.when[-1]:
            return False  # of a generation that is counted
        record = self._records.pop(file.digest, None) or _Record(file, Machine(HEALTH, HealthState.SOUND))
        self._evict()
        self._records[file.digest] = record
        now = self._clock()
        record.deaths.append(CrashEvidence(time.time(), cause, stderr.strip()[-STDERR_CHARACTERS_MAX:]))
        record.when.append(now)
        record.in_a_row += 1
        delay_max = BACKOFF_SECONDS[min(record.in_a_row, len(BACKOFF_SECONDS)) - 1]
        record.not_before = now + self._jitter(0.0, delay_max)
        state_before = record.machine.state
        too_often = len(record.when) == DEATHS_MAX and now - record.when[0] <= WITHIN_SECONDS
        record.machine.fire(HealthEvent.DIED_TOO_OFTEN if too_often else HealthEvent.DIED)
        if record.machine.state is state_before or record.machine.state is not HealthState.QUARANTINED:
            return False
        record.since = time.time()
        return True

    def served(self, file: ToolFile) -> None:
        """A call of the file ended as calls should."""
        if not self._records or (record := self._records.get(file.digest)) is None:
            return
        if record.machine.fire(HealthEvent.SERVED) is HealthState.SOUND:
            del self._records[file.digest]

    def release(self, names: Collection[str]) -> list[Quarantined]:
        """Let out the files with one of these paths or stems."""
        released = [
            record
            for record in self._records.values()
            if record.machine.state is HealthState.QUARANTINED
            and {record.file.path, record.file.stem} & {*names}
        ]
        for record in released:
            record.machine.fire(HealthEvent.RELEASED)
            del self._records[record.file.digest]
        return [record.snapshot() for record in released]

    # What follows from it

    def wait_seconds(self, file: ToolFile) -> float:
        """How long to wait before a worker is started for the file; 0 where nothing is held against it."""
        record = self._records.get(file.digest)
        return max(0.0, record.not_before - self._clock()) if record is not None else 0.0

    def holds(self, file: ToolFile) -> bool:
        """Whether the file is shut out."""
        record = self._records.get(file.digest)
        return record is not None and record.machine.state is HealthState.QUARANTINED

    def check(self, file: ToolFile) -> None:
        """Raise the `Refusal` of a file that is shut out."""
        if self.holds(file):
            raise _refusal(self._records[file.digest].snapshot())

    @property
    def all(self) -> list[Quarantined]:
        """The files that are shut out, the longest first."""
        quarantined = (
            record for record in self._records.values() if record.machine.state is HealthState.QUARANTINED
        )
        return sorted((record.snapshot() for record in quarantined), key=lambda file: file.since)

    def _evict(self) -> None:
        if len(self._records) < FILES_MAX:
            return
        ailing = (key for key, record in self._records.items() if record.machine.state is HealthState.AILING)
        del self._records[next(ailing, next(iter(self._records)))]


def _refusal(quarantined: Quarantined) -> Refusal:
    since = time.strftime("%H:%M:%S", time.localtime(quarantined.since))
    last = [line[:200] for line in quarantined.deaths[-1].stderr.splitlines() if line.strip()][-3:]
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
