"""Adapters are tested in front of a real daemon."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.adapters.kinds import ENGINED, lay_out
from tests.daemons import ROOMY, RunningDaemon, daemon, kept, make_daemon, running_daemon
from tests.engines import ENGINES

__all__ = [
    "HEARS",
    "IMPATIENT",
    "KIT",
    "LATE",
    "NEW",
    "TALK",
    "daemon",
    "ends_and_leaves_nothing",
    "heard",
    "make_daemon",
    "shared_daemon",
    "without_times",
]

ENDED_SECONDS_MAX = 60
"""For an application that starts an agent, and ends in a call; other tests may have the processors."""
KIT = Path(__file__).parent / "kit" / "kit.py"
HEARS = """
    import json
    from toolcell import SessionEvent, ToolContext, tool

    def on_session(event: SessionEvent, context: ToolContext) -> None:
        with open("heard", "a") as file:
            file.write(json.dumps([event.reason, dict(event.data), context.session_id]) + "\\n")

    @tool
    def hears() -> str:
        return "It hears."
    """
"""A tool file that writes down what happens to sessions."""


async def heard(directory: Path, *reasons: str) -> dict[str, list[Any]]:
    """Wait until all of these have happened; return what was said of each, and the session, the last of each reason."""
    async with asyncio.timeout(30):
        while True:
            file = directory / "heard"
            lines = file.read_text().splitlines() if file.exists() else []
            told = {reason: said for reason, *said in map(json.loads, lines)}
            if told.keys() >= set(reasons):
                return told
            await asyncio.sleep(0.02)


TALK = KIT.with_name("talk.py").read_text()
"""Tools that use the services of an adapter, for the tests of services."""
NEW = {"agent_name": "main", "title": "", "failed": False}
"""A session that a tool began, as `session.list` has it."""
LATE = """
    import time
    from toolcell import tool

    time.sleep(1)  # longer than a session waits for its tools

    @tool
    def late() -> str:
        return "late"
    """


IMPATIENT = '\n[daemon]\nopen_wait = "10ms"\n'
"""The configuration with which the tool above is late."""


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[RunningDaemon]:
    """A daemon for the tests of a file."""
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def kit() -> Iterator[RunningDaemon]:
    """A daemon for the tests of a file, with the tools that every agent is tested with."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        daemon = RunningDaemon(Path(directory))
        shutil.copy(KIT, daemon.project / ".toolcell" / "tools" / "kit.py")
        with kept(daemon):
            daemon.start()
            yield daemon


async def ends_and_leaves_nothing(
    daemon: RunningDaemon, environment: dict[str, str], end: signal.Signals, says: bytes = b""
) -> None:
    """Run agent.py of the project until its model has called `kit_waits(name="cut")`, and end it with a signal."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "agent.py"),
        cwd=daemon.project,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(ENDED_SECONDS_MAX):
            assert process.stdin is not None
            process.stdin.write(says)
            while not (daemon.project / "cut.there").exists():
                await asyncio.sleep(0.02)
            family = psutil.Process(process.pid).children(recursive=True)
            assert family  # the agent's program, at least
            process.send_signal(end)
            await process.communicate()
            assert process.returncode == -end
            while not (daemon.project / "cut.stopped").exists() or daemon.status().sessions:
                await asyncio.sleep(0.02)
            while any(map(_runs, family)):
                await asyncio.sleep(0.02)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE  # another one's to reap
    except psutil.NoSuchProcess:
        return False


def without_times(session: dict[str, Any]) -> dict[str, Any]:
    """A session as `session.list` has it, without how old and how long idle it is."""
    ages = [session.pop("age_seconds"), session.pop("idle_seconds")]
    assert ages[0] >= ages[1] >= 0
    return session


@pytest.fixture(scope="module")
def kinds() -> Iterator[RunningDaemon]:
    """A daemon for the tests of a file, with tools of every kind."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        places = [*(str(engine.parent) for engine in ENGINES.values()), os.environ["PATH"]]
        daemon = RunningDaemon(Path(directory), environment={"PATH": ":".join(places)})
        lay_out(daemon.project)
        with kept(daemon):
            daemon.start()
            roomy = ROOMY.format(directory=daemon.directory)
            engined = ENGINED.format(project=daemon.project, python=sys.executable)
            daemon.config.write_text(f'{roomy}\n[daemon]\npacks = ["squad"]\nload_timeout = "60s"\n{engined}')
            daemon.reload()
            daemon.until_described({"served"})
            yield daemon
