"""TOML that is no TOML to its parser: a number of more digits than Python makes an integer of, and a key of too many parts.

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
KEY = "x" + ".x" * 32_000
"""Nearly as much as is read of a project's file: the parser would take ten seconds and 4 GiB for it."""
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"network = {NUMBER}\n", "a number of too many digits"),
        (f"{KEY} = 1\n", "more than 64 dots in line 1"),
    ],
)
async def test_a_project_with_such_a_configuration_keeps_its_tools(
    daemon: RunningDaemon, text: str, message: str
) -> None:
    daemon.tool("good", GOOD)
    (daemon.project / ".toolcell" / "config.toml").write_text(text)
    async with daemon.connect() as session:
        assert any(message in problem.message for problem in session.catalog.problems)
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
