"""`make endurance`: many mixed calls on one daemon, and whether anything grows with their number.

The mix (`mix`) has calls that are aborted, crash, pass a limit, ask, print, return more than the model reads, and such
that just return, from several sessions that come and go. Every outcome is compared with the expected one.
After each hundredth of the calls (`run`) the memory, descriptors, threads, processes and files of the daemon and of what is
below it are counted (`samples`). A line through those of the second half says how a figure changes with the calls (`slopes`). It
begins when the log of the daemon is full, of which 10,000 lines are kept, about one for a call: until then that rises by itself.

Exits 1 if a figure rises: by more than three standard errors and more than the table allows; if an outcome is another
one than expected, or missing; if the daemon ends an idle worker as one that goes on, which no tool of the mix does; if the
stored outputs pass their quota; or if the idle daemon holds more than before.

Resident memory is not what a process holds. malloc has areas for threads, sixteen of them on two processors, and each keeps
the most that was ever in it: a daemon that held as much as before rose by half a MiB in 10,000 calls, more slowly all the time. So
the daemon that is measured has one area, and collects its garbage (`site`). The client is measured when it has freed what it can.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from tests.daemons import RunningDaemon

from toolcelld.pool.pool import WENT_ON

from .run import Findings, configuration, endure
from .samples import FIGURES
from .slopes import PER_CALLS, Slope, fit

WARNINGS_MAX = 50
"""Lines of the daemon's log in a report, beside those that say what it does."""
FULL_CALLS = 12_000
"""After so many the log of the daemon is full, and every smaller cache."""
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "PYTHONPATH": str(Path(__file__).parent / "site")}


def slopes(findings: Findings) -> dict[str, Slope]:
    """Return the slope of each figure over the second half of the calls, without those before the caches are full."""
    first = max(findings.ended.total() / 2, FULL_CALLS)
    late = [sample for sample in findings.samples if sample.calls >= first]
    return {
        name: fit([(sample.calls, sample.figures[name]) for sample in late], allowed)
        for name, allowed in FIGURES.items()
    }


def failures(findings: Findings, calls: int, left: str, fitted: Mapping[str, Slope]) -> list[str]:
    """Return one line for each reason why the run has failed."""
    lines = [f"{name} rises" for name, slope in fitted.items() if slope.rises]
    lines += [f"lost: {call}" for call in findings.lost]
    lines += [f"wrong: {one}" for one in findings.wrong]
    most = max((sample.outputs_bytes for sample in findings.samples), default=0)
    if most > findings.quota_bytes:
        lines.append(f"stored outputs of {most} bytes, and the quota is {findings.quota_bytes}")
    ended = sum(number for name, number in findings.ended.items() if not name.startswith("after "))
    if ended + len(findings.lost) != calls:
        lines.append(f"{ended} calls of {calls} have ended")
    return lines + ([left] if left else [])


def went_on(log: str) -> list[str]:
    """Return one line for each idle worker that the daemon has ended."""
    return [f"ended: {line}" for line in log.splitlines() if WENT_ON in line]


def run(calls: int) -> dict[str, Any]:
    """Run it, and return the report."""
    config, quota_bytes = configuration(calls)
    findings = Findings(quota_bytes)
    left = ""
    # Who has a look at its database leaves files there, for which a report is not lost.
    with tempfile.TemporaryDirectory(prefix="te-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        daemon = RunningDaemon(Path(directory), config=config, environment=ENVIRONMENT)
        daemon.start()
        began = time.monotonic()
        try:
            asyncio.run(endure(daemon, calls, findings))
            daemon.check()
        except (AssertionError, pytest.fail.Exception) as error:
            left = str(error)
        finally:
            daemon.stop()
        seconds = time.monotonic() - began
        log = daemon.log.read_text()
        warnings = [line for line in log.splitlines() if " INFO " not in line][:WARNINGS_MAX]
    fitted = slopes(findings)
    failed = failures(findings, calls, left, fitted) + went_on(log)
    return {
        "calls": calls,
        "seconds": round(seconds, 1),
        "ended": dict(findings.ended),
        "wrong": findings.wrong_count,
        "lost": len(findings.lost),
        "slopes": {
            name: asdict(slope) | {"judged": slope.judged, "rises": slope.rises}
            for name, slope in fitted.items()
        },
        "samples": [asdict(sample) for sample in findings.samples],
        "failures": failed,
        "warnings": warnings,
    }


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print the report as a table."""
    table = Table("for each 10,000 calls", "slope", "± error", "allowed", "mean", "", box=None)
    assert PER_CALLS == 10_000
    for name, slope in report["slopes"].items():
        figures = (f"{slope[key]:.3f}" for key in ("rise", "error", "allowed", "mean"))
        table.add_row(name, *figures, "RISES" if slope["rises"] else "" if slope["judged"] else "not judged")
    console.print(table)
    rate = report["calls"] / report["seconds"]
    console.print(
        f"\n{report['calls']} calls in {report['seconds']:.0f} s ({rate:.0f} a second), "
        f"{report['wrong']} with a wrong outcome, {report['lost']} lost"
    )
    for line in [*report["failures"], *report["warnings"]]:
        console.print(f"- {line}", markup=False)


def main() -> int:
    """Read the arguments, run, and return the status of the process."""
    parser = argparse.ArgumentParser(prog="tests.endurance", description="Whether anything grows with calls.")
    parser.add_argument("--calls", type=int, default=100_000, help="how many; default: 100000")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, with all samples")
    arguments = parser.parse_args()
    report = run(arguments.calls)
    if arguments.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        show(report, Console(width=110, highlight=False))
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
