"""The mix of calls: what each kind does, how often it is made, and how it has to end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from toolcell.client import Answer, Ask, Call, Outcome, Session, Update
from toolcell.client import Kind as Ending
from toolcelld.calls.run import CHANGED

__all__ = ["KINDS", "SERVICES", "Kind", "allow_some", "deal"]

TEXT_BYTES: Final = 100_000
"""Twice what the model reads, so a result of that size is stored; as arguments it needs several messages."""


async def ends(call: Call) -> Outcome:
    """Wait for the outcome."""
    return await call


async def abort_running(call: Call) -> Outcome:
    """Abort a call that has said that it runs."""
    async for event in call:
        if isinstance(event, Update):
            break
    call.abort("no longer needed")
    return await call


async def abort_at_once(call: Call) -> Outcome:
    """Abort a call that may not have a worker yet."""
    call.abort("a mistake")
    return await call


@dataclass(frozen=True, slots=True)
class Kind:
    """Calls that are alike.

    - `share`: how many of 100,000 calls are of this kind.
    - `tool`, `arguments`: what is called. A tool of `sick` is the copy of the session, and a good call follows.
    - `ending`, `cause`: of the outcome; a cause of None is not compared.
    - `details`: of the outcome; None is not compared.
    - `act`: what is done until the outcome.
    - `stored`: whether the result is too long for the model, and is read from the daemon afterwards.
    - `left`: how many processes it leaves behind.
    """

    share: int
    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    ending: Ending = Ending.ok
    cause: str | None = None
    details: object = None
    act: Callable[[Call], Awaitable[Outcome]] = ends
    stored: bool = False
    left: int = 0

    @property
    def sick(self) -> bool:
        """Whether it counts as a crash of its file, which a good call has to follow."""
        return self.tool.startswith("sick_")

    def wrong(self, outcome: Outcome) -> str:
        """Return how the outcome differs from what is expected; "" if it does not."""
        found = (outcome.kind, self.cause and outcome.cause, self.details and outcome.details)
        expected = (self.ending, self.cause, self.details)
        stored = outcome.output is not None and outcome.output.complete
        if found != expected:
            return f"{found} instead of {expected}, by {outcome.facts.worker_id}: {outcome.cause}, {outcome.message}"
        if stored != self.stored:
            return f"its output is {outcome.output}"
        if outcome.kind in _STOPPED and outcome.ran and outcome.stopped not in {"settled", "killed"}:
            return f"no proof of its stop: {outcome.stopped}"
        if (left := outcome.facts.leftover_processes) != self.left:
            return f"{left} processes left by it, by {outcome.facts.worker_id}"
        # No tool of the mix changes its process for good, so no worker is replaced for that.
        return next((note for note in outcome.notes if note.startswith(CHANGED)), "")


_STOPPED = frozenset({Ending.aborted, Ending.timed_out, Ending.limit_exceeded})
_SUM: Final = {"a": 1, "b": 2}

KINDS: Final[Mapping[str, Kind]] = {
    # Aborted: 10 %.
    "aborted, sync": Kind(3500, "steady_patient", ending=Ending.aborted, act=abort_running),
    "aborted, async": Kind(2500, "steady_awaiting", ending=Ending.aborted, act=abort_running),
    "aborted at once": Kind(1500, "steady_patient", ending=Ending.aborted, act=abort_at_once),
    "aborted, killed": Kind(300, "steady_deaf", ending=Ending.aborted, act=abort_running),
    "aborted, session's worker": Kind(1200, "kept_patient", ending=Ending.aborted, act=abort_running),
    "aborted, call's worker": Kind(1000, "fresh_patient", ending=Ending.aborted, act=abort_running),
    # Crashing: 2 %.
    "exits": Kind(1000, "sick_exits", ending=Ending.crashed, cause="exit 3"),
    "faults": Kind(1000, "sick_faults", ending=Ending.crashed, cause="SIGSEGV"),
    # Over a limit: 0.1 %.
    "memory": Kind(25, "sick_hoards", ending=Ending.limit_exceeded, cause="memory"),
    "processes": Kind(25, "sick_forks", ending=Ending.limit_exceeded, cause="processes"),
    "cpu": Kind(25, "sick_spins", ending=Ending.limit_exceeded, cause="cpu"),
    "timeout": Kind(25, "sick_late", ending=Ending.timed_out, cause="timeout"),
    # The rest ends as its tool says.
    "stored": Kind(2000, "steady_long", {"size": TEXT_BYTES}, stored=True),
    "long arguments": Kind(1000, "steady_length", {"text": "x" * TEXT_BYTES}, details=TEXT_BYTES),
    "prints": Kind(5000, "steady_prints", {"lines": 20}),
    "tells": Kind(3000, "steady_tells"),
    "asks": Kind(2000, "steady_asks"),
    "asks, denied": Kind(1000, "steady_asks", ending=Ending.denied),
    "requests": Kind(1000, "steady_requests", {"number": 21}, details=42),
    "executes": Kind(1000, "steady_executes"),
    "leaves a process": Kind(300, "steady_leaves", left=1),
    "fails": Kind(2000, "steady_fails", ending=Ending.tool_error),
    "invalid": Kind(1000, "steady_add", {"a": "one"}, ending=Ending.invalid_arguments),
    "unknown": Kind(300, "nothing", ending=Ending.refused, cause="unknown_tool"),
    "edited": Kind(1000, "edited", {}),
    "session's worker": Kind(10_000, "kept_count"),
    "call's worker": Kind(5000, "fresh_add", _SUM, details=3),
    "async": Kind(10_000, "steady_later", _SUM, details=3),
    "sync": Kind(42_300, "steady_add", _SUM, details=3),
}

GOOD: Final = Kind(0, "sick_well")
"""The call that follows one of a sick tool, so that its file is not put into quarantine."""


def deal(calls: int, seed: int = 1) -> list[str]:
    """Return the kinds of that many calls in a random order: each by its share, and at least once."""
    whole = sum(kind.share for kind in KINDS.values())
    counts = Counter({name: max(1, round(kind.share * calls / whole)) for name, kind in KINDS.items()})
    counts["sync"] += calls - counts.total()
    dealt = list(counts.elements())
    random.Random(seed).shuffle(dealt)
    return dealt


async def allow_some(ask: Ask) -> Answer:
    """Answer a question: the id of the call says whether it is allowed."""
    return not ask.call.id.startswith("denied")


async def _double(call: Call, number: int) -> int:
    return 2 * number


SERVICES: Final = {"double": _double}


def start(session: Session, name: str, number: int, sick: str) -> Call:
    """Start the call with this number of that kind; `sick` is the session's own file in place of `sick`."""
    kind = KINDS[name]
    prefix = "denied" if kind.ending is Ending.denied else "call"
    return session.call(kind.tool.replace("sick", sick), kind.arguments, call_id=f"{prefix}-{number}")
