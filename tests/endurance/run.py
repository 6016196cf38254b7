"""Makes the calls of the mix in a daemon, and takes a sample after each round of them.

A round is made from several sessions at once, each with several calls in flight. Then the sessions are closed, the
idle workers retired, and the sample is taken when the daemon is at rest: what is counted then does not depend on how many
workers the load of the machine has just kept alive.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.daemons import RunningDaemon

from toolcell.client import Catalog, Outcome, Session

from .mix import GOOD, KINDS, SERVICES, TEXT_BYTES, allow_some, deal, start
from .samples import Sample, take

__all__ = ["Findings", "endure"]

SESSIONS: Final = 8
LANES: Final = 4
"""Calls in flight of each session."""
ROUNDS: Final = 100
ROUND_CALLS_MIN: Final = 100
EDIT_CALLS: Final = 500
"""Between two edits of a tool file."""
VERSIONS: Final = 8
"""Of the edited file; each new one would add rows to the cache of descriptions, until that has its thousands."""
CALL_SECONDS_MAX: Final = 120.0
"""No call of the mix takes three seconds on a quiet machine; one that is not told by then is lost."""
WRONG_MAX: Final = 50
"""How many wrong outcomes are kept in words."""
TOOLS: Final = Path(__file__).parent / "tools"

CONFIG: Final = """
trust = "all"

[daemon]
abort_grace = 0.2

[spill]
quota = {quota_bytes}

[records]
rows = {rows}
"""


@dataclass(slots=True)
class Findings:
    """What a run found; changed as it goes on.

    - `ended`: the calls of each kind that have ended.
    - `wrong`: those whose outcome was not the expected one, the first ones in words.
    - `lost`: those that were never told an outcome.
    """

    quota_bytes: int
    ended: Counter[str] = field(default_factory=Counter[str])
    wrong_count: int = 0
    wrong: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    samples: list[Sample] = field(default_factory=list[Sample])

    def add(self, name: str, problem: str) -> None:
        """Count a call that has ended, and keep what is wrong with it."""
        self.ended[name] += 1
        if problem:
            self.wrong_count += 1
            if len(self.wrong) < WRONG_MAX:
                self.wrong.append(f"{name}: {problem}")


def configuration(calls: int) -> tuple[str, int]:
    """Return the daemon's, and the quota of outputs: a quarter of the run fills it, and the records, so that both stay as they are.

    The records have the same bound for calls and for events, of which there are four for ten calls.
    """
    share = KINDS["stored"].share / 100_000
    quota_bytes = max(2**20, int(calls * share * TEXT_BYTES / 4))
    return CONFIG.format(quota_bytes=quota_bytes, rows=max(1000, calls // 10)), quota_bytes


def lay_out(daemon: RunningDaemon) -> None:
    """Write the tools into the project."""
    tools = daemon.project / ".toolcell" / "tools"
    for path in TOOLS.glob("*.py"):
        for name in [f"sick{n}" for n in range(SESSIONS)] if path.stem == "sick" else [path.stem]:
            shutil.copy(path, tools / f"{name}.py")
    edit(daemon, 0)


def edit(daemon: RunningDaemon, number: int) -> None:
    """Replace a tool file by another version, as an editor does."""
    path = daemon.project / ".toolcell" / "tools" / "edited.py"
    new = daemon.directory / "edited.new"
    new.write_text(
        f"from toolcell import tool\n\n@tool\ndef edited() -> int:\n    return {number % VERSIONS}\n"
    )
    os.replace(new, path)


async def endure(daemon: RunningDaemon, calls: int, findings: Findings) -> None:
    """Make so many calls in a daemon that runs, in rounds, and take a sample after each."""
    lay_out(daemon)
    await asyncio.to_thread(daemon.describe)
    dealt = list(enumerate(deal(calls)))
    size = max(calls // ROUNDS, ROUND_CALLS_MIN)
    for first in range(0, calls, size):
        await _round(daemon, iter(dealt[first : first + size]), findings)
        await asyncio.to_thread(daemon.settle, daemon.blanks())
        findings.samples.append(take(daemon, findings.ended.total()))


async def _round(daemon: RunningDaemon, hand: Iterator[tuple[int, str]], findings: Findings) -> None:
    """Make these calls from several sessions at once, and close the sessions."""
    async with asyncio.TaskGroup() as group:
        for place in range(SESSIONS):
            group.create_task(_session(daemon, hand, findings, f"sick{place}"))


async def _session(
    daemon: RunningDaemon, hand: Iterator[tuple[int, str]], findings: Findings, sick: str
) -> None:
    one_sick = asyncio.Lock()
    async with (
        daemon.connect(ask=allow_some, services=SERVICES, on_catalog=_ignore) as session,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(LANES):
            group.create_task(_lane(daemon, session, hand, findings, sick, one_sick))


def _ignore(_: Catalog) -> None:
    """Follow the changes of the tools."""


async def _lane(
    daemon: RunningDaemon,
    session: Session,
    hand: Iterator[tuple[int, str]],
    findings: Findings,
    sick: str,
    one_sick: asyncio.Lock,
) -> None:
    """Make one call after the other."""
    for number, name in hand:
        kind = KINDS[name]
        if number % EDIT_CALLS == 0:
            edit(daemon, number // EDIT_CALLS)
        if kind.sick:
            async with one_sick:
                await _call(session, name, number, findings, sick)
                outcome = await session.call(GOOD.tool.replace("sick", sick))
            if problem := GOOD.wrong(outcome):
                findings.add(f"after {name}", problem)
        else:
            await _call(session, name, number, findings, sick)


async def _call(session: Session, name: str, number: int, findings: Findings, sick: str) -> None:
    """Make a call, and look at how it ends."""
    kind = KINDS[name]
    call = start(session, name, number, sick)
    try:
        async with asyncio.timeout(CALL_SECONDS_MAX):
            outcome = await kind.act(call)
            problem = kind.wrong(outcome) or (await _unread(session, outcome) if kind.stored else "")
    except TimeoutError:
        findings.lost.append(f"{name}, call {number}")
        return
    findings.add(name, problem)


async def _unread(session: Session, outcome: Outcome) -> str:
    """Read the end of a stored output."""
    assert outcome.output is not None
    end = await session.read_output(outcome.output.id, start=outcome.output.bytes - 10)
    return "" if len(end) == 10 else f"the end of its output is {end!r}"
