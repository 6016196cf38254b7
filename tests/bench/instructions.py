"""The instructions that the daemon executes for a warm call, counted by valgrind's callgrind.

    python -m tests.bench.instructions [--calls 100] [--no-records]

It is of all threads, gRPC's and the interpreter's work too. What the daemon does by itself in the same time is counted
as well, and subtracted, as valgrind makes it fifty times slower. The least of five runs is printed. The processes of
workers are not counted: they are programs of their own. The calls are so slow that each is committed by itself to the records, which
a busy daemon does for all calls of a tenth of a second at once; `--no-records` leaves that away.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.bench import contenders
from tests.bench.contenders import served, toolcell_call

from toolcell.client import connect

__all__ = ["instructions"]

WARM_CALLS: Final = 60
RUNS: Final = 5
START_SECONDS_MAX: Final = 300.0
CONTROLLED: Final = "TOOLCELL_COUNTED"
"""The variable of the process that is counted."""


async def instructions(directory: Path, calls: int, configuration: str = "") -> float:
    """Return the instructions of one call, the least of the runs of so many calls each."""
    wrapper = directory / "python"
    wrapper.write_text(
        f"#!/bin/sh\necho $$ >{directory}/pid\nexec valgrind --tool=callgrind --instr-atstart=no"
        f' --callgrind-out-file={directory}/counted --quiet {sys.executable} "$@"\n'
    )
    wrapper.chmod(0o755)
    contenders.START_SECONDS_MAX = START_SECONDS_MAX
    python, sys.executable = sys.executable, str(wrapper)  # which starts the daemon
    with served(directory, configuration, module=__spec__.name, variables={CONTROLLED: "1"}) as path:
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
    serve_calls()


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser(description="The daemon's instructions for a warm call.")
    parser.add_argument("--calls", type=int, default=100, help="of each run; default: 100")
    parser.add_argument("--no-records", action="store_true", help="of a daemon that keeps no records")
    arguments = parser.parse_args()
    configuration = "[records]\nenabled = false\n" if arguments.no_records else ""
    if shutil.which("callgrind_control") is None:
        sys.exit("valgrind is not installed. Install it: apt install valgrind")
    with tempfile.TemporaryDirectory(
        prefix="tb-", dir="/var/tmp"
    ) as directory:  # a socket's path must be short
        found = asyncio.run(instructions(Path(directory), arguments.calls, configuration))
    print(f"{found:,.0f} instructions a call, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    serve() if CONTROLLED in os.environ else main()
