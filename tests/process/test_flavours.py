"""Tools that lie where other systems keep theirs: found, named, limited and protected as those of `.toolcell/tools`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.daemons import ROOMY, RunningDaemon

from toolcell_proto.v1 import operator_pb2

pytestmark = pytest.mark.anyio

PLACES = (".opencode/tool", ".opencode/tools", ".omp/tools", ".claude/tools", ".codex/tools")
LONG = """
from toolcell import tool

@tool
def lines(count: int, width: int = 1) -> str:
    return "\\n".join("x" * width for _ in range(count))

def execute(args, context):
    return {"output": "from a plain object", "title": "T", "metadata": {"n": 1}}

plain = {"description": "A plain object.", "args": {}, "execute": execute}
"""
WRITES = """
import pathlib
from toolcell import ToolContext, tool

@tool
def writes(path: str, context: ToolContext) -> str:
    there = context.directory / path
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_text("from toolcell import tool\\n@tool\\ndef planted(): ...\\n")
    return "written"
"""


def put(daemon: RunningDaemon, place: str, name: str, source: str) -> Path:
    path = daemon.project / place / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return path


def protect_no_more(daemon: RunningDaemon) -> None:
    """Leave only what is always protected: the places count again when the flavours are switched on."""
    configuration = ROOMY.format(directory=daemon.directory)
    daemon.config.write_text(
        configuration.replace("[defaults]", "[daemon]\nflavours = []\n[defaults]\nprotected = []")
    )
    daemon.reload()


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
async def test_a_tool_is_found_from_below_named_and_called(daemon: RunningDaemon, place: str) -> None:
    (daemon.project / ".toolcell/tools").rmdir()
    (daemon.project / ".toolcell").rmdir()
    put(daemon, place, "shop", LONG)
    (daemon.project / "sub").mkdir()
    async with daemon.connect(directory=daemon.project / "sub") as session:
        assert set(session.catalog.tools) == {"shop_lines", "shop_plain"}
        outcome = await session.call("shop_plain")
    assert (outcome.text, outcome.metadata["n"]) == ("from a plain object", 1)


async def test_a_users_place_is_offered_in_every_project(daemon: RunningDaemon) -> None:
    for number, place in enumerate(
        (".config/opencode/tool", ".omp/agent/tools", ".claude/tools", ".codex/tools")
    ):
        path = daemon.directory / place / f"mine{number}.py"
        path.parent.mkdir(parents=True)
        path.write_text(
            "from toolcell import tool\n\n@tool(name=__name__)\ndef mine() -> str:\n    return 'mine'\n"
        )
    async with daemon.connect() as session:
        assert {name: tool.scope for name, tool in session.catalog.tools.items()} == {
            f"mine{number}": "global" for number in range(4)
        }
        assert (await session.call("mine2")).text == "mine"


@pytest.mark.parametrize(
    ("place", "bytes_max", "notice"),
    [
        (".toolcell/tools", 50_000, "[truncated: output exceeded 50000 bytes]"),
        (".opencode/tool", 51_200, "...8828 bytes truncated..."),
        (".omp/tools", 51_200, "[truncated: output exceeded 51200 bytes]"),
    ],
)
async def test_each_flavour_has_its_limit_and_its_notice(
    daemon: RunningDaemon, place: str, bytes_max: int, notice: str
) -> None:
    put(daemon, place, "shop", LONG)
    async with daemon.connect() as session:
        text = (await session.call("shop_lines", {"count": 60, "width": 999})).text
        assert text.endswith(notice)
        assert bytes_max - 60 < len(text) <= bytes_max
        by_lines = (await session.call("shop_lines", {"count": 3000})).text
    said = "...1002 lines truncated..." if "opencode" in place else "[truncated: 1002 lines omitted]"
    assert by_lines.endswith(said)


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
async def test_a_tool_plants_no_other_whatever_is_configured(daemon: RunningDaemon, place: str) -> None:
    protect_no_more(daemon)
    daemon.tool("writes", WRITES)
    kept = put(daemon, place, "kept", "# kept\n")
    async with daemon.connect() as session:
        over = await session.call("writes", {"path": f"{place}/kept.py"})
        await session.call("writes", {"path": f"{place}/planted.py"})
        assert (await session.call("writes", {"path": "allowed.py"})).ok
    found = daemon.ask("Operator/Doctor", operator_pb2.DoctorRequest(), operator_pb2.DoctorResponse)
    if found.enclosure != "strict":  # then nothing in the project can be made read-only
        return
    assert not over.ok
    assert kept.read_text() == "# kept\n"
    assert not (daemon.project / place / "planted.py").exists()


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("place", [".opencode/tools", ".claude/tools", ".codex/tools", ".omp/tools"])
async def test_a_place_of_tools_that_a_tool_makes_is_not_there_after_the_call(
    daemon: RunningDaemon, place: str
) -> None:
    protect_no_more(daemon)
    daemon.tool("writes", WRITES)
    (daemon.project / place).parent.mkdir()
    if place.startswith(".omp"):
        (daemon.project / place).parent.rmdir()
    async with daemon.connect() as session:
        outcome = await session.call("writes", {"path": f"{place}/planted.py"})
        assert not (daemon.project / place).exists(), outcome
        assert "is protected" in outcome.message if not outcome.ok else "moved-aside" in repr(outcome.facts)
