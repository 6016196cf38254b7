"""What has no contender, and bounds in seconds: `python -m tests.bench.limits`. Exits 1 when a bound is passed.

- opening: a session on a directory of 1,000 tool files, beside one on an empty directory
- floods: echoes in one session while a tool of another prints or returns a gigabyte, beside echoes in
  peace, and by how much the daemon's peak memory grows
- cells: the call for which a confined worker has to be started, beside an unconfined one
- stops: from the abort or the time-out of a call to its ending, when its cell is empty
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.bench.contenders import TOOLS, served, toolcell_call

from toolcell.client import Catalog, Session, Update, connect
from toolcell.client._launch.daemon import Running
from toolcell.client._transport.operator import operate
from toolcell_proto.v1 import operator_pb2

HERE = Path(__file__).parent
WARM_OPEN_SECONDS_MAX = 0.3
COLD_OPEN_SECONDS_MAX = 2.5  # the two seconds of the bound, and the way there and back
FILES = 1000
FLOODS: dict[str, dict[str, int]] = {
    "prints": {"size": 2**30},
    "has_a_child_print": {"size": 2**30},
    "returns_lines": {"count": 2**30 // 129},
}
FLOOD_RATIO_MAX = 5.0
FLOOD_GROWTH_BYTES_MAX = 32 * 2**20
PEACE_SECONDS = 2.0
ECHO_PAUSE_SECONDS = 0.002  # between two echoes, so that one client alone is no flood
CELLS = 30  # new workers of each enclosure
CELL_SECONDS_MAX = {"baseline": 0.003, "strict": 0.008}
BLANK_PAUSE_SECONDS = 0.1  # until the next blanks have been built
STOPS = 100
STOP_GRACE_SECONDS = 0.2
STOP_SECONDS_MAX = {
    "patient": 0.05,  # p99 from the abort to the ending
    "awaiting": 0.05,
    "deaf": STOP_GRACE_SECONDS + 0.1,
    "late": 0.1,  # over its time
}
LATE_SECONDS = 0.3

STOPPED = f'''
import asyncio, signal, time
from toolcell import ToolContext, tool

@tool
def patient(context: ToolContext) -> None:
    """Sleep."""
    context.update("there")
    time.sleep(60)

@tool
async def awaiting(context: ToolContext) -> None:
    """Sleep on the loop."""
    context.update("there")
    await asyncio.sleep(60)

@tool
def deaf(context: ToolContext) -> None:
    """Hear nothing."""
    signal.signal(signal.SIGRTMIN + 1, signal.SIG_IGN)
    context.update("there")
    time.sleep(60)

@tool(timeout={LATE_SECONDS})
def late(context: ToolContext) -> None:
    """Take too long."""
    context.update("there")
    time.sleep(60)
'''


async def openings(console: Console, directory: Path, socket: str) -> bool:
    empty, full = directory / "empty", directory / "full"
    empty.mkdir()
    (full / ".toolcell" / "tools").mkdir(parents=True)
    for n in range(FILES):
        source = f'from toolcell import tool\n\n@tool\ndef t{n:04}(x: int = {n}) -> int:\n    """Tool {n}."""\n    return x\n'
        (full / ".toolcell" / "tools" / f"t{n:04}.py").write_text(source)

    async def opened(place: Path) -> float:
        began = time.perf_counter()
        async with connect(socket, directory=place, daemon="running"):
            return time.perf_counter() - began

    began = time.perf_counter()
    arrived = asyncio.Event()
    count = 0

    def on_catalog(catalog: Catalog) -> None:
        nonlocal count
        count = len(catalog.tools)
        if count == FILES:
            arrived.set()

    async with connect(socket, directory=full, daemon="running", on_catalog=on_catalog) as session:
        cold = time.perf_counter() - began
        first = len(session.catalog.tools)
        if first < FILES:
            await arrived.wait()
        whole = time.perf_counter() - began
    seconds: dict[str, list[float]] = {"empty": [], "full": []}
    for _ in range(9):
        seconds["empty"].append(await opened(empty))
        seconds["full"].append(await opened(full))
    over = statistics.median(seconds["full"]) - statistics.median(seconds["empty"])
    console.print(
        f"\nopening on {FILES} tool files: cold {cold:.2f} s with {first} tools, all of them after {whole:.1f} s "
        f"(bound {COLD_OPEN_SECONDS_MAX:g} s); warm {over * 1000:.0f} ms over an empty directory "
        f"(bound {WARM_OPEN_SECONDS_MAX * 1000:.0f} ms)"
    )
    return cold <= COLD_OPEN_SECONDS_MAX and over <= WARM_OPEN_SECONDS_MAX


async def echoes(session: Session, until: Callable[[], bool]) -> list[float]:
    """Seconds of every echo until then."""
    seconds: list[float] = []
    while not until():
        began = time.perf_counter()
        (await session.call("echo", {"text": "x"})).check()
        seconds.append(time.perf_counter() - began)
        await asyncio.sleep(ECHO_PAUSE_SECONDS)
    return seconds


async def flood(session: Session, neighbour: Session, tool: str) -> tuple[float, float]:
    """The 95th percentile of the neighbour's echoes, in peace and while the tool floods."""
    peace_over = time.perf_counter() + PEACE_SECONDS
    in_peace = await echoes(neighbour, lambda: time.perf_counter() > peace_over)
    call = session.call(tool, FLOODS[tool])
    flooded = await echoes(neighbour, lambda: call.outcome is not None)
    (await call).check()
    return statistics.quantiles(in_peace, n=20)[-1], statistics.quantiles(flooded, n=20)[-1]


async def floods(console: Console, directory: Path) -> bool:
    """In a daemon of its own, so that its peak memory is its own."""
    table = Table(
        "1 GiB", "p95 in peace, ms", "p95 flooded, ms", "ratio", "bound", "memory MiB", "bound", box=None
    )
    good = True
    with served(directory) as socket:
        project = directory / "project"
        shutil.copy(HERE.parent / "tools" / "floods.py", project / ".toolcell" / "tools")
        async with (
            connect(socket, directory=project, daemon="running") as session,
            connect(socket, directory=project, daemon="running") as neighbour,
            operate(Running(socket)) as operator,
        ):

            async def peak_bytes() -> int:
                status = await operator.ask(operator.operator.GetStatus, operator_pb2.GetStatusRequest())
                return status.memory_peak_bytes

            for one in (session, neighbour):
                (await one.call("echo", {"text": "x"})).check()
            for tool in FLOODS:
                before = await peak_bytes()
                in_peace, flooded = await flood(session, neighbour, tool)
                grown = await peak_bytes() - before
                good = good and flooded / in_peace <= FLOOD_RATIO_MAX and grown <= FLOOD_GROWTH_BYTES_MAX
                figures = [in_peace * 1000, flooded * 1000, flooded / in_peace]
                table.add_row(
                    tool, *(f"{figure:.2f}" for figure in figures), f"{FLOOD_RATIO_MAX:g}",
                    f"{grown / 2**20:.1f}", f"{FLOOD_GROWTH_BYTES_MAX / 2**20:.0f}",
                )  # fmt: skip
    console.print()
    console.print(table)
    return good


async def cells(console: Console, directory: Path) -> bool:
    """In a daemon of its own, whose configuration names the enclosure by the tool's name."""
    kinds = ("none", *CELL_SECONDS_MAX)
    rules = "".join(f'[tool."{kind}_*"]\nsandbox = "{kind}"\n' for kind in kinds)
    with served(directory, rules) as socket:
        tools = directory / "project" / ".toolcell" / "tools"
        names = [f"{kind}_{n:02}" for n in range(CELLS) for kind in kinds]
        for name in names:
            (tools / f"{name}.py").write_text(TOOLS.format(options="", name=name))
        seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
        async with connect(socket, directory=directory / "project", daemon="running") as session:
            while any(name not in session.catalog.tools for name in names):
                await session.reload()
            for name in random.Random(1).sample(names, len(names)):
                await asyncio.sleep(BLANK_PAUSE_SECONDS)
                began = time.perf_counter()
                await toolcell_call(session, name)(1)
                seconds[name.partition("_")[0]].append(time.perf_counter() - began)
    table = Table("first call of a new worker", "p50 ms", "over none", "bound", box=None)
    base, good = statistics.median(seconds["none"]), True
    for kind, figures in seconds.items():
        median = statistics.median(figures)
        bound = CELL_SECONDS_MAX.get(kind)
        good = good and (bound is None or median - base <= bound)
        table.add_row(
            kind,
            f"{median * 1000:.2f}",
            f"{(median - base) * 1000:+.2f}",
            f"{bound * 1000:g}" if bound else "",
        )
    console.print()
    console.print(table)
    return good


async def stops(console: Console, directory: Path) -> bool:
    """Each call says that it is there, and is stopped then."""
    grace = f"[daemon]\nabort_grace = {STOP_GRACE_SECONDS}\n"
    table = Table("stopped", "p50 ms", "p99 ms", "bound", "proof", box=None)
    good = True
    with served(directory, grace) as socket:
        project = directory / "project"
        (project / ".toolcell" / "tools" / "s.py").write_text(STOPPED)
        async with connect(socket, directory=project, daemon="running") as session:
            for name, bound in STOP_SECONDS_MAX.items():
                figures: list[float] = []
                proofs: set[str] = set()
                for _ in range(STOPS):
                    call = session.call(f"s_{name}")
                    async for event in call:
                        if isinstance(event, Update):
                            break
                    began = time.perf_counter()
                    if name != "late":
                        call.abort("by the bench")
                    outcome = await call
                    taken = outcome.facts.run_seconds if name == "late" else time.perf_counter() - began
                    figures.append(taken - (LATE_SECONDS if name == "late" else 0))
                    proofs.add(str(outcome.stopped))
                p99 = statistics.quantiles(figures, n=100)[98]
                good = good and p99 <= bound
                table.add_row(
                    name,
                    f"{statistics.median(figures) * 1000:.1f}",
                    f"{p99 * 1000:.1f}",
                    f"{bound * 1000:.0f}",
                    ", ".join(sorted(proofs)),
                )
    console.print()
    console.print(table)
    return good


async def main() -> int:
    parser = argparse.ArgumentParser(description="What a call costs where it has no contender.")
    parser.add_argument("--only", choices=["open", "flood", "cells", "stops"])
    arguments = parser.parse_args()
    console = Console(width=110, highlight=False)
    directory = Path(tempfile.mkdtemp(prefix="tb-", dir="/tmp"))
    good = True
    try:
        if arguments.only in (None, "open"):
            with served(directory) as socket:
                good = await openings(console, directory, socket) and good
        for name, measure in (("flood", floods), ("cells", cells), ("stops", stops)):
            if arguments.only in (None, name):
                good = await measure(console, directory / name) and good
    finally:
        shutil.rmtree(directory)
    console.print("\nwithin the bounds" if good else "\nOVER A BOUND")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
