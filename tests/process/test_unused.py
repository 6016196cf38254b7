"""What is no Python tool is named, and never run."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

TOOL = "from toolcell import tool\nfrom utils import WORD\nfrom .more import MORE\n\n@tool\ndef say() -> str:\n    return WORD + MORE\n"


async def test_helpers_are_silent_and_files_without_a_tool_are_not(daemon: RunningDaemon) -> None:
    daemon.tool("say", TOOL)
    daemon.tool("utils", "WORD = 'w'\n")
    daemon.tool("more", "MORE = 'm'\n")
    daemon.tool("nothing", "def forgot_the_decorator(): ...\n")
    async with daemon.connect() as session:
        assert (await session.call("say")).text == "wm"
        (problem,) = session.catalog.problems
        assert (problem.path.rpartition("/")[2], problem.reason) == ("nothing.py", "unused")
        assert problem.message.startswith(
            "has no tool: none of its functions has @tool: forgot_the_decorator\n"
        )
        outcome = await session.call("nothing")
    assert outcome.cause == "broken_tool"
    assert "nothing is unused" in outcome.message


async def test_scripts_metadata_and_other_languages_are_never_run(daemon: RunningDaemon) -> None:
    tools = daemon.project / ".toolcell/tools"
    for name in ("a.ts", "b.js", "c.sh", "d.md", "e.json"):
        (tools / name).write_text("#!/bin/sh\ntouch ran\n")
        (tools / name).chmod(0o755)
    async with daemon.connect() as session:
        assert session.catalog.tools == {}
        assert {problem.path.rpartition("/")[2] for problem in session.catalog.problems} == {"a.ts", "b.js"}
    assert not list(daemon.project.rglob("ran"))


@pytest.mark.slow
async def test_what_a_file_puts_in_place_of_modules_does_no_harm(daemon: RunningDaemon) -> None:
    daemon.tool(
        "odd",
        """
        import sys
        from toolcell import tool

        class Module:
            @property
            def __file__(self):
                raise SystemExit("asked")

        sys.modules["odd_one"] = Module()
        sys.modules["odd_none"] = None
        for number in range(3000):
            module = type(sys)(f"m{number}")
            module.__file__ = f"{__file__.rpartition('/')[0]}/m{number}.py"
            sys.modules[f"odd_{number}"] = module

        @tool(name="odd")
        def odd() -> str:
            return "well"
        """,
    )
    async with daemon.connect() as session:
        assert (await session.call("odd")).text == "well"
