"""The Python of the pages does what they say: tools are called in a daemon; programs, tests and hooks are run.

The pages of `RUN_ELSEWHERE` have tests of their own. What is run nowhere is in `NOT_RUN`, with the reason.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Answer, Ask, Question, question_service

from .pages import ROOT, Block
from .snippets import RUN_ELSEWHERE, kind_of, python, stem_of

pytestmark = pytest.mark.anyio

SECONDS_MAX: Final = 30
NOT_RUN: Final = {
    "docs/needs.md title": "its package comes from a registry; a tool of docs/first-hour.md is one with a package",
}


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a tool of a page: its outcome, and a part of the text of that."""

    tool: str
    text: str
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    kind: str = "ok"


CALLS: Final = {
    "README.md": [
        Called("words", "3", {"path": "LICENSE"}),
        Called("stuck", "1.0 s; it stopped by itself", kind="timed_out"),
    ],
    "docs/agents/mcp.md": [Called("release", "2.0: Faster", {"notes": "It is faster."})],
    "docs/client.md": [Called("report", "3 rows", {"rows": 3})],
    "docs/debugging.md": [Called("count", "2", {"path": "notes.txt"})],
    "docs/factories.md": [
        Called("look_up", "Ada", {"name": "ada"}),
        Called("count", "3 files", {"glob": "*"}),
        Called("write_later", "Would write 3 characters to later.txt.", {"path": "later.txt", "text": "abc"}),
        Called("write_later_resolve", "later.txt", {"action": "apply", "reason": "it is right"}),
        Called("deploy", "test: routine"),
    ],
    "docs/needs.md": [
        Called("price", "needs the network to api.example.org", {"symbol": "ABC"}, kind="refused"),
        Called("account", "A token of 12 characters."),
    ],
    "docs/tutorial.md": [
        Called("todo", '["src/app.py:1: # TODO: everything"]', {"folder": "src", "most": 5}),
        Called("todo", "There is no directory nowhere.", {"folder": "nowhere"}, kind="tool_error"),
        Called("todo", "most", {"most": "many"}, kind="invalid_arguments"),
    ],
    "docs/writing-tools.md": [
        Called("find", '["apples"]', {"pattern": "^a"}),
        Called("index", "files."),
        Called("notes_add", "1", {"text": "milk"}),
    ],
}
"""Of each page with tools: what is called, in its order."""


def of_kind(*kinds: str) -> list[Block]:
    """Return the snippets of these kinds that are run here."""
    return [block for block in python() if block.page not in RUN_ELSEWHERE and kind_of(block) in kinds]


def parameters(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in of_kind(kind)])


def write_tools(daemon: RunningDaemon, *files: Block) -> None:
    for block in files:
        # The time-out of `stuck`, which a person would wait for; a worker can take a part of it to start.
        daemon.tool(stem_of(block), block.text.replace("(timeout=5)", "(timeout=1)"))


async def yes(ask: Ask) -> Answer:
    return True


async def dialog(question: Question) -> object:
    return {"select": "test", "confirm": True, "input": "routine"}.get(question.kind)


async def host(call: object, title: dict[str, Any], form: dict[str, Any]) -> object:
    """An MCP host with a model and a person."""
    assert (title["method"], form["method"]) == ("sampling/createMessage", "elicitation/create")
    return {
        "title": {"content": {"type": "text", "text": "Faster"}},
        "form": {"action": "accept", "content": {"version": "2.0"}},
    }


@pytest.mark.slow
@pytest.mark.parametrize("page", CALLS)
async def test_each_tool_of_a_page_is_called_and_returns_what_it_should(
    daemon: RunningDaemon, page: str
) -> None:
    files = [block for block in of_kind("tools", "test") if block.page == page]
    write_tools(daemon, *(block for block in files if f"{page} {stem_of(block)}" not in NOT_RUN))
    services = {"ui.question": question_service(dialog), "mcp.input": host}
    async with daemon.connect(ask=yes, services=services) as session:
        assert session.catalog.problems == ()
        assert set(session.catalog.tools) == {call.tool for call in CALLS[page]}
        for call in CALLS[page]:
            outcome = await session.call(call.tool, call.arguments)
            assert (outcome.kind, call.text in outcome.text) == (call.kind, True), outcome


def test_each_snippet_is_run_or_the_list_says_why_not() -> None:
    assert {block.page for block in of_kind("tools")} <= set(CALLS)
    skipped = [block.page for block in of_kind("comment")]
    skipped += [f"{block.page} title" for block in of_kind("tools") if stem_of(block) == "title"]
    assert sorted(skipped) == sorted(NOT_RUN)
    for page, test in RUN_ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(), f"{test} says nothing of {page}"


@parameters("test")
def test_the_tests_of_a_page_pass(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(block.text, block.place, "exec"), names)
    tests = [name for name in names if name.startswith("test_")]
    monkeypatch.chdir(tmp_path)
    for name in tests:
        asks = inspect.signature(names[name]).parameters
        done = names[name](**({"tmp_path": tmp_path} if "tmp_path" in asks else {}))
        if inspect.isawaitable(done):
            asyncio.run(_awaited(done))
    assert tests


async def _awaited(done: Any) -> None:
    await done


PROGRAMS: Final = {
    "README.md": r"(Started\(.*\)\n)?3\n",
    "docs/client.md": r"\['report'\]\nreport asks: Write report.txt\?\n(log: starts\n|[12] of 2\n){2,3}ok 2 rows\n",
    "docs/factories.md": r"Where to\? \('test', 'production'\) {.*}\nDeploy to test\? \(\) {.*}\nNot deployed\.\n",
}
"""What the programs of a page print."""


@pytest.mark.slow
@parameters("program")
async def test_a_program_of_a_page_prints_what_it_should(block: Block, daemon: RunningDaemon) -> None:
    write_tools(daemon, *(file for file in of_kind("tools") if file.page == block.page))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        block.text,
        cwd=daemon.project,
        env={"PATH": os.environ["PATH"], "HOME": str(daemon.directory), "TOOLCELL_SOCKET": daemon.socket},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS_MAX):
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert re.fullmatch(PROGRAMS[block.page], out.decode()), out


@pytest.mark.slow
@parameters("hook")
async def test_the_hooks_of_a_page_hold_what_it_says(block: Block, daemon: RunningDaemon) -> None:
    hooks = daemon.directory / "guard.py"
    hooks.write_text(block.text)
    daemon.tool(
        "write",
        """
        from toolcell import tool

        @tool
        def write(path: str, text: str) -> str:
            return f"wrote {text!r} to {path} for ada@example.com"
        """,
    )
    daemon.configure(f'[hooks.guard]\nfile = "{hooks}"\ntools = ["write*"]\n')
    async with daemon.connect() as session:
        outcome = await session.call("write", {"path": "src/a", "text": "b  "})
        assert outcome.ok, outcome
        assert outcome.text.startswith("wrote 'b' to src/a"), outcome
        assert "ada@example.com" not in outcome.text
        refused = await session.call("write", {"path": "a", "text": "b"})
        assert (refused.kind, refused.cause) == ("denied", "hook"), refused
        assert "write into src/ only" in refused.text
