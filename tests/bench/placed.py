"""Calls of a session that Placement has put on a node, over TLS, in turn with those of the same daemon's unix socket."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from tests.process.clusters import cluster

from toolcell.client import Kind, Session, Update, connect

__all__ = ["placed_calls"]

PERSON: Final = "alice"
TOOL: Final = '''
import asyncio
from toolcell import ToolContext, tool

@tool
def adds(a: int) -> int:
    """Add one."""
    return a + 1

@tool
async def waits(context: ToolContext) -> None:
    """Sleep until it is aborted."""
    context.update("there")
    await asyncio.sleep(600)
'''

Measured: TypeAlias = Callable[[Session], Awaitable[float]]
"""Does something once; returns the seconds that it took."""


async def _warm(session: Session) -> float:
    begun = time.perf_counter()
    outcome = await session.call("c_adds", {"a": 1})
    taken = time.perf_counter() - begun
    assert outcome.text == "2", outcome
    return taken


async def _abort(session: Session) -> float:
    """From the abort to the outcome."""
    call = session.call("c_waits")
    async for event in call:
        if isinstance(event, Update):
            break
    begun = time.perf_counter()
    call.abort("enough")
    outcome = await call
    taken = time.perf_counter() - begun
    assert outcome.kind is Kind.aborted, outcome
    return taken


@contextmanager
def _member(directory: Path) -> Generator[None]:
    """The user's configuration in a directory of its own."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(directory)
    try:
        yield
    finally:
        del os.environ["XDG_CONFIG_HOME"]
        if before is not None:
            os.environ["XDG_CONFIG_HOME"] = before


async def placed_calls(directory: Path, calls: int, aborts: int, in_turn: int) -> dict[str, float]:
    """Return the time of a warm call, and of an abort, over that on the unix socket: the median of the ratios of rounds.

    Args:
        directory: Where the user's configuration is written.
        calls: Warm calls of each.
        aborts: Aborts of each.
        in_turn: Calls that follow each other.
    """
    tenants = {PERSON: {"directories": ["a:"]}}
    with _member(directory), cluster({"n1": {"volumes": {"a": "a"}}}, tenants=tenants) as running:
        running.join(PERSON)
        daemon = running.nodes["n1"]
        project = daemon.project / "a"
        (project / ".toolcell" / "tools" / "c.py").write_text(TOOL)
        async with (
            connect(daemon.socket, directory=project, daemon="running") as near,
            connect("cluster", directory="a:") as far,
        ):
            await near.reload()
            await far.reload()
            return {
                "placed_call": await _ratio(_warm, near, far, calls // in_turn, in_turn),
                "placed_abort": await _ratio(_abort, near, far, aborts, 1),
            }


async def _ratio(measured: Measured, near: Session, far: Session, rounds: int, in_turn: int) -> float:
    ratios: list[float] = []
    for number in range(rounds + 1):  # the first is not counted
        medians = [
            statistics.median([await measured(session) for _ in range(in_turn)])
            for session in ((near, far) if number % 2 else (far, near))
        ]
        own, other = medians if number % 2 else reversed(medians)
        if number:
            ratios.append(other / own)
    return statistics.median(ratios)
