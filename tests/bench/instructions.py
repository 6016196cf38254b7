"""The instructions that the daemon executes for a warm call, counted by valgrind's callgrind.

    python -m tests.bench.instructions [--calls 100] [--shared 25] [--no-records]

It is of all threads, gRPC's and the interpreter's work too. What the daemon does by itself in the same time is counted
as well, and subtracted, as valgrind makes it fifty times slower. The least of five runs is printed. The processes of
workers are not counted: they are programs of their own. A daemon commits the calls of a tenth of a second at once to the
records; as calls are so slow here, it does so after a number of them, 25 by default. `--no-records` leaves that away.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.bench import contenders
from tests.bench.contenders import served, toolcell_call

from toolcell.client import connect

__all__ = ["instructions"]

WARM_CALLS: Final = 60
RUNS: Final = 5
START_SECONDS_MAX: Final = 300.0
CONTROLLED: Final = "TOOLCELL_COUNTED"
"""The variable of the process that is counted: after how many calls they are committed."""


async def instructions(directory: Path, calls: int, shared: int, configuration: str = "") -> float:
    """Return the instructions of one call, the least of the runs of so many calls each, of which some share a commit."""
    wrapper = directory / "python"
    wrapper.write_text(
        f"#!/bin/sh\necho $$ >{directory}/pid\nexec valgrind --tool=callgrind --instr-atstart=no"
        f' --callgrind-out-file={directory}/counted --quiet {sys.executable} "$@"\n'
    )
    wrapper.chmod(0o755)
    contenders.START_SECONDS_MAX = START_SECONDS_MAX
    python, sys.executable = sys.executable, str(wrapper)  # which starts the daemon
    with served(directory, configuration, module=__spec__.name, variables={CONTROLLED: str(shared)}) as path:
        sys.executable = python
        async with connect(path, directory=directory / "project", daemon="running") as session:
            call = toolcell_call(session)
            for n in range(WARM_CALLS):
                await call(n)
            pid = (directory / "pid").read_text().strip()
            _control(pid, "--instr=on")
            for _ in range(RUNS):
                _control(pid, "--zero")
                begun = time.monotonic()
                for n in range(calls):
                    await call(n)
                seconds = time.monotonic() - begun
                _control(pid, "--dump")
                _control(pid, "--zero")
                await asyncio.sleep(seconds)
                _control(pid, "--dump")
    totals = [_total(directory / f"counted.{dump}") for dump in range(1, 2 * RUNS + 1)]
    return min(busy - idle for busy, idle in zip(totals[::2], totals[1::2], strict=True)) / calls


def _control(pid: str, request: str) -> None:
    subprocess.run(["callgrind_control", request, pid], check=True, capture_output=True)


def _total(counted: Path) -> int:
    found = re.search(r"^(?:totals|summary): (\d+)", counted.read_text(), re.MULTILINE)
    assert found is not None, counted
    return int(found[1])


def serve() -> None:
    """Run the daemon, which handles no signal that valgrind keeps for itself."""
    from toolcelld import linux
    from toolcelld.__main__ import main as serve_calls

    linux.UNUSED_SIGNALS = linux.UNUSED_SIGNALS[:-1]  # type: ignore[misc]
    _commit_each(int(os.environ[CONTROLLED]))
    serve_calls()


def _commit_each(calls: int) -> None:
    """Have the records commit after so many calls, however long they take."""
    from toolcelld.calls.outcomes.history import CallHistory, CallSummary
    from toolcelld.records import writer

    writer.BATCH_SECONDS = 3600.0  # type: ignore[misc]
    add, start, count = CallHistory.add, writer.Writer.start, itertools.count(1)
    hurries: list[Any] = []

    def started(self: writer.Writer) -> None:
        hurries.append(vars(self)["_hurry"])
        start(self)

    def added(self: CallHistory, call: CallSummary) -> int:
        size = add(self, call)
        if not next(count) % calls:
            for hurry in hurries:
                hurry.put(None)
        return size

    writer.Writer.start, CallHistory.add = started, added  # type: ignore[method-assign]


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser(description="The daemon's instructions for a warm call.")
    parser.add_argument("--calls", type=int, default=100, help="of each run; default: 100")
    parser.add_argument("--shared", type=int, default=25, help="that share a commit; default: 25")
    parser.add_argument("--no-records", action="store_true", help="of a daemon that keeps no records")
    arguments = parser.parse_args()
    configuration = "[records]\nenabled = false\n" if arguments.no_records else ""
    if shutil.which("callgrind_control") is None:
        sys.exit("valgrind is not installed. Install it: apt install valgrind")
    with tempfile.TemporaryDirectory(
        prefix="tb-", dir="/var/tmp"
    ) as directory:  # a socket's path must be short
        found = asyncio.run(instructions(Path(directory), arguments.calls, arguments.shared, configuration))
    print(f"{found:,.0f} instructions a call, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    serve() if CONTROLLED in os.environ else main()
