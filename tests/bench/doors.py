"""The road of a warm call through the daemon: the Python functions that its main thread enters, counted by `sys.setprofile`.

    python -m tests.bench.doors [--list]

A count, the same in every run: a coroutine that goes on is entered again, and the `__init__` of a dataclass is an entry.
The entries are those of Toolcell's own modules; "in all" has asyncio's and the constructors of named tuples as well.
What timers do between two calls is in some roads, more of them on a slow machine, so the figure is that of the shortest.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
from collections import deque
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias

from tests.bench.contenders import served, toolcell_call

from toolcell.client import connect

__all__ = ["Road", "road"]

CALLS: Final = 60
"""Enough that some of them meet no timer."""
DOOR: Final = "ToolCell._read"
"""The coroutine that goes on with each message of a client: a call's road is from there to the next."""
ENDS: Final = {"Session.admit", "Session.on_ended"}
"""A road without both is that of another message, or of a call that was cut in two by one."""
DELAY_SECONDS: Final = 600.0
"""Until a call that has not ended is announced: on a busy machine each of them would be, when it is counted."""
OURS: Final = ("toolcell.", "toolcell_proto.", "toolcelld.")
FILE: Final = "TOOLCELL_DOORS"
"""The variable that names the file for what was counted."""

Step: TypeAlias = "tuple[str, str]"  # the module and the function


class Road(NamedTuple):
    """What one call enters, in order."""

    steps: tuple[Step, ...]

    def figures(self) -> dict[str, int]:
        """Return the counts: moves are from one module to another, returns those to a module that was left before."""
        ours = [step for step in self.steps if step[0].startswith(OURS)]
        modules = [module for module, _ in ours]
        moves = sum(before != after for before, after in itertools.pairwise(modules))
        return {
            "entries": len(ours),
            "functions": len(set(ours)),
            "modules": len(set(modules)),
            "moves": moves,
            "returns": moves + 1 - len(set(modules)),
            "entries in all": len(self.steps),
        }

    def __str__(self) -> str:
        return "\n".join(f"{module:45} {function}" for module, function in self.steps)


async def road(directory: Path) -> Road:
    """Call a warm tool of a daemon whose steps are counted, and return the steps of the shortest road."""
    counted = directory / "steps.json"
    with served(directory, module=__spec__.name, variables={FILE: str(counted)}) as path:
        async with connect(path, directory=directory / "project", daemon="running") as session:
            call = toolcell_call(session)
            for n in range(CALLS):
                await call(n)
    roads = [tuple((module, name) for module, name in steps) for steps in json.loads(counted.read_text())]
    whole = [Road(steps) for steps in roads if {name for _, name in steps} >= ENDS]
    return min(whole, key=lambda found: (found.figures()["modules"], len(found.steps)))


def serve() -> None:
    """Run the daemon, and write the steps of its last calls when it ends."""
    from toolcelld.__main__ import main as serve_calls
    from toolcelld.sessions import outbox

    outbox.DELAY_SECONDS = DELAY_SECONDS  # type: ignore[misc]

    roads: deque[list[Step]] = deque(maxlen=CALLS)
    steps: list[Step] = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal steps
        if event != "call":
            return
        code = frame.f_code
        if code.co_qualname == DOOR:
            steps = []
            roads.append(steps)
        steps.append((str(frame.f_globals.get("__name__")), code.co_qualname))

    sys.setprofile(count)
    try:
        serve_calls()
    finally:
        sys.setprofile(None)
        Path(os.environ[FILE]).write_text(json.dumps([*roads]))


def main() -> None:
    """Print the figures, and with `--list` the steps."""
    parser = argparse.ArgumentParser(description="The road of a warm call through the daemon.")
    parser.add_argument("--list", action="store_true", help="each entry, in order")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="tb-", dir="/var/tmp"
    ) as directory:  # a socket's path must be short
        found = asyncio.run(road(Path(directory)))
    if arguments.list:
        print(found)
    print(", ".join(f"{count} {name}" for name, count in found.figures().items()))


if __name__ == "__main__":
    serve() if FILE in os.environ else main()
