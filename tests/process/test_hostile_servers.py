"""MCP servers that are hostile, each in one way: what it does harms none but itself.

While each is called, another server and a tool of the same daemon are called again and again, and every answer of theirs is
right. What the daemon has in memory is held against a bound that a flood would pass.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from tests import servers
from tests.daemons import ROOMY, RunningDaemon, running_daemon
from tests.process.test_mcp_servers import entry, text_of
from tests.servers.hostile import CALLS, LISTS

from toolcell.client import Call, Session

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

HERE: Final = Path(servers.__file__).parent
BOUNDS: Final = (
    '[daemon]\nabort_grace = "300ms"\nload_timeout = "60s"\nworkers = 8\n[spill]\nbytes_per_call = 1048576\n'
)
GROWTH_BYTES_MAX: Final = 60 * 2**20
"""Of the daemon, over all tests of this file: twice the longest message of a server, which is read in its cell."""
PAUSE_SECONDS: Final = 0.05
"""Between two rounds of calls beside a hostile one: without it they take a processor, and show the same."""
OUT_OF_TIME: Final = r"timed_out timeout killed"
ENDLESS: Final = 'timeout = "1s"'
SAY: Final = "from toolcell import tool\n\n@tool\ndef say(text: str) -> str:\n    return text\n"

CALLED: Final[Mapping[str, tuple[str, str]]] = {
    "banner": ("", "ok .* mine"),
    "twice": ("", "ok .* mine"),
    "others": ("", "ok .* mine"),
    "late": ("", "ok .* mine"),
    "questions": ("", "ok .* mine"),
    "unread": ("", r"crashed exit 70 .* does not read what it is sent: 64 MiB wait"),
    "unreadable": ("", "ok .* mine"),
    "odd": ("", "tool_error .*"),
    "nested": ("", "(ok|tool_error) .*"),
    "half": (ENDLESS, OUT_OF_TIME),
    "huge": ("", "crashed exit 70 .* sent a message of more than 32 MiB"),
    "large": ("", "ok .* xxx"),
    "deaf": ('timeout = "60s"', "ok .* mine"),
    "mute": ("", "crashed exit 70 .* closed its output and goes on"),
    "floods_stdout": (ENDLESS, OUT_OF_TIME),
    "floods_stderr": (ENDLESS, OUT_OF_TIME),
    "floods_records": (ENDLESS, OUT_OF_TIME),
    "floods_progress": (ENDLESS, OUT_OF_TIME),
    "floods_requests": (ENDLESS, OUT_OF_TIME),
    "babbles": ("", "ok .* mine"),
    "changes": ("", "ok .* mine"),
    "changes_and_dies": ("", "crashed exit 9 .*"),
    "pingless": (ENDLESS, OUT_OF_TIME),
}
"""The options of a server's source, and how a call of it ends."""

LISTED: Final[Mapping[str, tuple[str, str]]] = {
    "codes": (r"codes_31mred_tool_x+_[0-9a-f]{8}", ""),
    "many": (r"(many_t\d+ ?){128}", r"100000 tools; only the first 128 are used"),
    "same": (r"same_a_b", r"two tools that come to the name same_a_b; the first is used"),
    "pages": (r"(pages_t\d+ ?){50}", ""),
    "other_each_time": (r"other_each_time_t\d+_0", ""),
    "no_tools": (r"no_tools_a", ""),
    "deep": (r"(deep_a)?", r".*"),
    "wide": (r"(wide_a)?", r".*"),
}
"""The names of a server's tools, and what is said of it."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """A daemon with all of them, and with a server and a tool that are well."""
    with running_daemon() as daemon:
        for name in ("hostile", "plain"):
            shutil.copy(HERE / f"{name}.py", daemon.project)
        daemon.tool("say", SAY)
        text = ROOMY.format(directory=daemon.directory) + BOUNDS + entry()
        for way in {**CALLED, **LISTED}:
            options = CALLED[way][0] if way in CALLED else ""
            command = json.dumps([sys.executable, "-I", "${project}/hostile.py", way])
            text += f"[source.{way}]\nmcp = {command}\n{options}\n"
        daemon.config.write_text(text)
        daemon.reload()
        daemon.until_described({"plain", *CALLED})
        yield daemon


@pytest.fixture
def peak_before(daemon: RunningDaemon) -> int:
    """The most memory that the daemon has had before a test, in bytes."""
    return daemon.status().memory_peak_bytes


async def others_are_right_beside(session: Session, call: Call) -> None:
    """Call another server and a tool, as long as a call goes on and once more."""
    number = 0
    over = False
    while not over:
        over = call.outcome is not None
        number += 1
        for tool in ("plain_echo", "say"):
            assert await text_of(session, tool, text=f"{tool} {number}") == f"{tool} {number}"
        await asyncio.sleep(PAUSE_SECONDS)


@pytest.mark.parametrize("way", CALLED)
async def test_what_a_hostile_server_does_in_a_call_ends_that_call_alone(
    way: str, daemon: RunningDaemon, peak_before: int
) -> None:
    async with daemon.connect() as session, daemon.connect() as neighbour:
        await session.described(60)
        for _ in range(
            1 if CALLED[way][0] else 2
        ):  # the second, if it has no clock, in the same process or a new one
            call = session.call(f"{way}_call")
            await others_are_right_beside(neighbour, call)
            outcome = await call
            said = f"{outcome.kind.value} {outcome.cause} {outcome.stopped} {outcome.text[:100]} {outcome.message}"
            assert re.match(CALLED[way][1], said, re.DOTALL), said
            assert "forged" not in repr(outcome)
    assert daemon.status().memory_peak_bytes - peak_before < GROWTH_BYTES_MAX


@pytest.mark.parametrize("way", LISTED)
async def test_a_hostile_list_of_tools_is_cut_and_said(
    way: str, daemon: RunningDaemon, peak_before: int
) -> None:
    names, problem = LISTED[way]
    async with daemon.connect() as session:
        await session.described(60)
        found = {name: tool for name, tool in session.catalog.tools.items() if tool.scope == way}
        assert re.fullmatch(names, " ".join(found)), sorted(found)
        said = " ".join(it.message for it in session.catalog.problems if Path(it.path).stem == way)
        assert re.search(problem, said, re.DOTALL), said
        assert "\x1b" not in said
        for name, tool in found.items():
            assert name.isprintable()
            assert len(name) <= 64
            assert len(tool.description.encode()) <= 8192
        if len(found) == 1:
            assert await text_of(session, *found) == "mine"
        assert await text_of(session, "say", text="a") == "a"
    assert daemon.status().memory_peak_bytes - peak_before < GROWTH_BYTES_MAX


def test_each_way_of_the_server_is_in_a_table() -> None:
    assert CALLED.keys() - {"banner"} == CALLS.keys()
    assert LISTED.keys() == LISTS.keys()
