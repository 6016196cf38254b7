"""What it costs a warm call that somebody watches: a scrape each second, `toolcell top`, and the page's stream.

Rounds with and without them follow each other on one daemon. The watchers are programs of their own, as they are for an
operator, so they also take of the processors.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Final

from tests.bench.contenders import Call, environment, served, toolcell_call

from toolcell.client import connect

__all__ = ["watched_calls"]

ROUND_SECONDS: Final = 4.0
"""Several scrapes, and looks of the page, which looks each two seconds."""
SETTLE_SECONDS: Final = 1.0
"""Until `top` has drawn and the page has looked for the first time."""


async def watched_calls(directory: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Return the median seconds of a call in each round without and with watchers, which follow each other."""
    address = directory / "m.sock"
    alone: list[float] = []
    watched: list[float] = []
    with served(directory, f'[metrics]\nlisten = "{address}"\n') as path, _page(directory, path) as page:
        async with connect(path, directory=directory / "project", daemon="running") as session:
            call = toolcell_call(session)
            for n in range(200):
                await call(n)
            for number in range(2 * rounds):
                if number % 2:
                    async with _watching(path, str(address), page):
                        await asyncio.sleep(SETTLE_SECONDS)
                        watched.append(statistics.median(await _calls(call)))
                else:
                    alone.append(statistics.median(await _calls(call)))
    return alone, watched


async def _calls(call: Call) -> list[float]:
    seconds: list[float] = []
    until = time.perf_counter() + ROUND_SECONDS
    while (began := time.perf_counter()) < until:
        await call(len(seconds))
        seconds.append(time.perf_counter() - began)
    return seconds


@contextlib.contextmanager
def _page(directory: Path, path: str) -> Generator[str]:
    """`toolcell ui`, with nobody looking; the value is its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "toolcell.cli", "ui", "0", "--json", "--socket", path],
        cwd=directory / "project",
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["link"].partition("/#")[0]
        finally:
            process.terminate()


@contextlib.asynccontextmanager
async def _watching(path: str, metrics: str, page: str) -> AsyncGenerator[None]:
    """All three, until the end of the block."""
    token = (Path(path).parent / "operator.token").read_text()
    curl = ["curl", "--silent", "--no-buffer", "--output", os.devnull]
    scrape = f"while sleep 1; do {' '.join(curl)} --unix-socket {metrics} http://localhost/metrics; done"
    terminal, inside = pty.openpty()
    top = [sys.executable, "-m", "toolcell.cli", "top", "--socket", path]
    stream = [*curl, "--header", f"Authorization: Bearer {token}", f"{page}/api/operator/live"]
    surroundings = {**environment(), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    programs: list[subprocess.Popen[bytes]] = []
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, os.read, terminal, 65536)  # what `top` draws is read, as a terminal does
    try:
        for words, stdio in (
            (["sh", "-c", scrape], subprocess.DEVNULL),
            (stream, subprocess.DEVNULL),
            (top, inside),
        ):
            programs.append(
                subprocess.Popen(
                    words,
                    stdin=stdio,
                    stdout=stdio,
                    stderr=stdio,
                    env=surroundings,
                    process_group=0,
                )
            )
        yield
        ended = [program.args for program in programs if program.poll() is not None]
        assert not ended, f"did not watch to the end: {ended}"
    finally:
        loop.remove_reader(terminal)
        for program in programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, 9)
            program.wait()
        os.close(terminal)
        os.close(inside)


async def main() -> None:
    """Measure, and print the medians of both and of the ratios of neighbours: `python -m tests.bench.watched [ROUNDS]`."""
    import tempfile

    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory(prefix="tb-", dir="/var/tmp") as place:
        alone, watched = await watched_calls(Path(place), rounds)
    ratios = sorted(over / under for over, under in zip(watched, alone, strict=True))
    medians = [1000 * statistics.median(seconds) for seconds in (alone, watched)]
    print(f"alone {medians[0]:.3f} ms, watched {medians[1]:.3f} ms, {rounds} rounds of each")
    print(
        f"ratio of neighbours: median {statistics.median(ratios):.3f}, of {ratios[0]:.3f} to {ratios[-1]:.3f}"
    )


if __name__ == "__main__":
    asyncio.run(main())
