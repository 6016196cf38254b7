"""First calls in environments, against the first call of a plain tool: `python tests/bench/environments.py`.

Ratios within one run. Every first call is in a new worker (`isolation = "call"`); the cell was forked ahead in all cases.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from tests.daemons import RunningDaemon

ROUNDS = 15
PLAIN = "from toolcell import tool\n\n@tool\ndef {name}() -> int:\n    return 1\n"
BLOCK = '# /// script\n# dependencies = ["{package}"]\n# ///\n'


async def first_calls(daemon: RunningDaemon, directory: Path, tool: str, rounds: int = ROUNDS) -> float:
    """The median time of a call in a new worker, in milliseconds, once the file is described."""
    taken: list[float] = []
    waits: list[float] = []
    for _ in range(rounds):
        await asyncio.to_thread(daemon.settle, 4)  # with every cell forked ahead
        async with daemon.connect(directory=directory) as session:
            began = time.perf_counter()
            outcome = await session.call(tool, {})
            taken.append(1000 * (time.perf_counter() - began))
            waits.append(1000 * outcome.facts.queue_seconds)
            assert outcome.kind.value == "ok", outcome
    print(
        f"  {tool}: {statistics.median(taken):.1f} ms, {statistics.median(waits):.1f} ms of them to a loaded worker"
    )
    return statistics.median(taken)


def project(top: Path, name: str, text: str) -> Path:
    tools = top / name / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / f"{name}.py").write_text(text)
    return top / name


def environment(prefix: Path, *, unfit: bool = False) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    packages = next(prefix.glob("lib/python*/site-packages"))
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if unfit:
        (packages / "pydantic-0.0.1.dist-info").mkdir()


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as place:
        top = Path(place)
        variables = {name: value for name, value in os.environ.items() if name.startswith("SSL_CERT")}
        (top / "daemon").mkdir(mode=0o700)
        daemon = RunningDaemon(top / "daemon", environment=variables)
        uv = Path(sys.executable).parent / "uv"
        daemon.config.write_text(
            f'trust = "all"\n[environments]\nuv = "{uv}"\n[defaults]\nisolation = "call"\nmemory = "1GiB"\n'
        )
        daemon.launch()
        try:
            plain = await first_calls(daemon, project(top, "plain", PLAIN.format(name="plain")), "plain")
            fits = project(top, "fits", PLAIN.format(name="fits"))
            environment(fits / ".venv")
            other = project(top, "other", PLAIN.format(name="other"))
            environment(other / ".venv", unfit=True)
            fitting = await first_calls(daemon, fits, "fits")
            executed = await first_calls(daemon, other, "other")
            print(f"plain {plain:.1f} ms; fitting environment {fitting:.1f} ms, {fitting / plain:.2f} times")
            print(f"another interpreter {executed:.0f} ms")
            script = BLOCK.format(package="numpy") + PLAIN.format(name="script")
            state = daemon.state / "environments"
            for kind in ("cold", "warm"):
                for kept in ("environments", "requests"):
                    shutil.rmtree(state / kept, ignore_errors=True)
                directory = project(top / kind, "script", script)
                began = time.perf_counter()
                async with daemon.connect(directory=directory) as session:
                    outcome = await session.call("script", {})
                assert outcome.kind.value == "ok", outcome
                print(f"numpy, {kind} cache: {time.perf_counter() - began:.2f} s")
            again = await first_calls(daemon, directory, "script")
            print(f"numpy, the second time: {again:.1f} ms, {again / plain:.2f} times")
        finally:
            daemon.stop()


if __name__ == "__main__":
    asyncio.run(main())
