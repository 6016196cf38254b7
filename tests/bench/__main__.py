"""`make bench`, or `python -m tests.bench [--quick] [--only NAME…] [--json FILE] [--svg FILE]`.

Figures are ratios of medians within one run. A figure over its bound is shown and is no failure; a contender that
cannot be measured is one.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from tests.bench.contenders import CONTENDERS, ROOT
from tests.bench.measures import MEASURES, Sizes, calls_in_turn
from tests.bench.picture import bars
from tests.bench.report import Report

PACKAGES = ("grpcio", "pydantic", "mcp", "fastmcp")


def _host() -> dict[str, str]:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    found = {name: version(name) for name in PACKAGES if importlib.util.find_spec(name.removesuffix("io"))}
    processors = len(os.sched_getaffinity(0))
    return {
        "processor": f"{processors} × {models[0] if models else platform.machine()}",
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        **found,
    }


async def run(arguments: argparse.Namespace, console: Console, directory: Path) -> Report:
    """Measure what was asked for."""
    report, sizes = Report(_host()), Sizes(arguments.quick)
    names = [name for name in CONTENDERS if not arguments.only or name in arguments.only]
    if names:
        console.print(f"calls of {len(names)} contenders …", style="dim")
        report.add(await calls_in_turn(directory / "calls", names, sizes))
    for name, measure in MEASURES.items():
        if not arguments.only or name in arguments.only:
            console.print(f"{name} …", style="dim")
            report.figures |= await measure(directory / name, sizes)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench", description="What a call costs, beside other ways to run it."
    )
    parser.add_argument("--quick", action="store_true", help="a few calls of each: whether it works")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*CONTENDERS, *MEASURES],
        metavar="NAME",
        help="of contenders or measures",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    console = Console(width=110, highlight=False)
    wanted = arguments.only or [*CONTENDERS, *MEASURES]
    needed = any("fastmcp" in name.lower() or name in ("rates", "starts", "large") for name in wanted)
    if needed and importlib.util.find_spec("fastmcp") is None:
        sys.exit("FastMCP is not installed. `make bench` installs it: pip install --group bench")
    for package in ("client", "daemon", "proto", "tests/bench"):
        compileall.compile_dir(ROOT / package, quiet=2)
    directory = Path(tempfile.mkdtemp(prefix="tb-", dir="/var/tmp"))  # a socket's path must be short
    try:
        report = asyncio.run(run(arguments, console, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report.print(console)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    if arguments.svg is not None and report.latencies:
        arguments.svg.write_text(bars("One call of add(a, b), milliseconds", report.latencies))
    return 0


if __name__ == "__main__":
    sys.exit(main())
