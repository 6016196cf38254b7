"""TOML that parses into an error of Python's own: a number of more digits than it makes an integer of.

`tomllib` passes on the ValueError of `int`, which is none of its own errors.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio

NUMBER = "9" * 5000
TOLD_SECONDS_MAX = 30
"""A fraction of a second here; other tests may have the processors."""

GOOD = """
from toolcell import tool

@tool
def good() -> str:
    return "good"
"""


async def test_a_configuration_that_cannot_be_read_leaves_the_daemon_as_it_was(daemon: RunningDaemon) -> None:
    daemon.tool("good", GOOD)
    with daemon.config.open("a") as config:
        config.write(f"\nnumber = {NUMBER}\n")
    async with daemon.connect() as session, daemon.operate() as operator:
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(TOLD_SECONDS_MAX):
            async for part in operator.watch(operator.operator.TailLogs, op.TailLogsRequest(follow=True)):
                if any("a number of too many digits" in line.text for line in part.lines):
                    break
        assert (await session.call("good")).check().text == "good"


async def test_a_project_with_such_a_configuration_keeps_its_tools(daemon: RunningDaemon) -> None:
    daemon.tool("good", GOOD)
    (daemon.project / ".toolcell" / "config.toml").write_text(f"network = {NUMBER}\n")
    async with daemon.connect() as session:
        assert any("a number of too many digits" in problem.message for problem in session.catalog.problems)
        assert (await session.call("good")).check().text == "good"


async def test_a_file_with_such_a_script_block_takes_no_session_along(daemon: RunningDaemon) -> None:
    daemon.tool("good", GOOD)
    own = Path(daemon.directory, ".config", "toolcell", "tools")
    own.mkdir(parents=True)
    (own / "counts.py").write_text(
        f"# /// script\n# dependencies = {NUMBER}\n# ///\n" + GOOD.replace("good", "counts")
    )
    async with daemon.connect() as session:
        outcome = await session.call("counts")
        assert outcome.kind == "refused"
        assert "a number of too many digits" in outcome.message
        assert (await session.call("good")).check().text == "good"
