"""What a person sees and does in the terminal programs of Claude and Copilot that `toolcell mcp install` told of the bridge.

Their model is ours; everything else is as a user has it after the first dialogs, which are answered in the files that
the programs keep. What is not asserted here is not shown, as docs/agents/mcp.md says.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.adapters import anthropic, openai
from tests.adapters.script import Turn, Use
from tests.adapters.terminal import TMUX, Terminal, terminal
from tests.adapters.test_mcp_hosts import PREFIX, PROGRAMS, shown
from tests.daemons import RunningDaemon

SECONDS_MAX = 60
KEY = "sk-of-the-terminal-alone"
TOOLCELL = str(Path(sys.executable).with_name("toolcell"))
AGENTS = ["claude", "copilot"]
STOP = {"claude": [("Escape", "")], "copilot": [("Escape", "esc again to interrupt"), ("Escape", "")]}
STOPPED = {"claude": "Interrupted", "copilot": "Operation cancelled by user"}

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.nightly,
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS_MAX * 6),
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed"),
]


@dataclass
class Agent:
    """A program in a terminal, and its model."""

    name: str
    screen: Terminal
    model: Any

    async def says(self, *uses: Use, prompt: str) -> None:
        """Type a prompt, to which the model answers with uses of tools."""
        self.model.script.turns = [Turn(uses=uses), Turn(text=f"{prompt}: that is all.")]
        self.screen.type(prompt)
        await self.screen.shows(prompt)
        self.screen.press("Enter")

    def use(self, tool: str, **arguments: Any) -> Use:
        """A use of a tool, by the name that the program gives it."""
        return Use(f"{PREFIX[self.name]}{tool}", arguments)

    async def stops(self) -> None:
        """Press the keys that end the turn, until the screen says so."""
        for key, then in STOP[self.name]:
            self.screen.press(key)
            await self.screen.shows(then)
        await self.screen.shows(STOPPED[self.name])

    async def result(self, use: Use, prompt: str) -> str:
        """Wait until the model has ended the turn, and return what it was shown of a use."""
        await self.screen.shows(f"{prompt}: that is all.")
        return shown(self.name, self.model, use)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of the program's own; what it unpacks there goes with it."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@asynccontextmanager
async def started(name: str, kit: RunningDaemon, home: Path, *projects: Path) -> AsyncGenerator[Agent]:
    """The program, in the first of the projects that it trusts, ready for a prompt; default: in the daemon's."""
    project, *_ = projects = projects or (kit.project,)
    if not PROGRAMS[name].exists():
        pytest.skip("the agent's program is not installed: make test-agents")
    kit.describe()
    serving: Any = anthropic.messages() if name == "claude" else openai.serving()
    async with serving as model:
        environment = {
            "HOME": str(home),
            "TERM": "xterm-256color",
            "TOOLCELL_SOCKET": kit.socket,
            **_environment(name, model.url),
        }
        _install(name, environment)
        if name == "claude":
            _answer_dialogs(home, projects)
            command, ready = ["--allowedTools", "mcp__toolcell"], "auto mode on"
        else:
            command, ready = ["--allow-all-tools"], "1 server connected"
        async with terminal([str(PROGRAMS[name]), *command], environment, project) as screen:
            if name == "copilot":
                await screen.shows("Do you trust the files in this folder?")
                screen.press("Enter")
            await screen.shows(ready)
            yield Agent(name, screen, model)


def _install(name: str, environment: dict[str, str]) -> None:
    command = [TOOLCELL, "mcp", "install", name, "--write", "-q"]
    subprocess.run(command, env={"PATH": os.environ["PATH"], **environment}, check=True, timeout=SECONDS_MAX)


def _environment(name: str, model: str) -> dict[str, str]:
    if name == "claude":
        return {
            "ANTHROPIC_BASE_URL": model,
            "ANTHROPIC_API_KEY": KEY,
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "MCP_CONNECT_TIMEOUT_MS": f"{SECONDS_MAX}000",
        }
    return {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": model,
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": openai.MODEL,
        "COPILOT_AUTO_UPDATE": "false",
    }


def _answer_dialogs(home: Path, projects: Sequence[Path]) -> None:
    """Claude's theme, its key and which projects are trusted, beside the server that install has written."""
    file = home / ".claude.json"
    if "theme" in (before := json.loads(file.read_text())):
        return  # another one runs, and writes there itself
    said = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {
            str(project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
            for project in projects
        },
    }
    file.write_text(json.dumps(before | said))


async def until(condition: Callable[[], object]) -> None:
    """Wait for what gives no sign when it comes."""
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", AGENTS)
async def test_a_question_is_read_in_full_and_answered(kit: RunningDaemon, home: Path, name: str) -> None:
    async with started(name, kit, home) as agent:
        use = agent.use("kit_asks", path="yes.txt")
        await agent.says(use, prompt="first")
        await agent.screen.shows("kit_asks: Write yes.txt?", "always: yes.txt", "Allow?")
        await agent.screen.press_until_gone("Enter", "Write yes.txt?\n")
        assert "wrote yes.txt" in await agent.result(use, "first")

        use = agent.use("kit_asks", path="no.txt")
        await agent.says(use, prompt="second")
        await agent.screen.shows("kit_asks: Write no.txt?", "Allow?")
        agent.screen.press("Escape")
        assert "Denied: Write no.txt?" in await agent.result(use, "second")


@pytest.mark.parametrize("name", AGENTS)
async def test_escape_stops_the_tool_and_the_screen_says_so(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    async with started(name, kit, home) as agent:
        await agent.says(agent.use("kit_waits", name=name), prompt="wait")
        await until((kit.project / f"{name}.there").exists)
        await agent.stops()
        await until((kit.project / f"{name}.stopped").exists)
        await until(lambda: kit.status().calls == 0)


@pytest.mark.parametrize("place", ["one directory", "two directories"])
@pytest.mark.parametrize("name", AGENTS)
async def test_two_sessions_at_once_do_not_stop_each_others_tools(
    kit: RunningDaemon, home: Path, name: str, place: str
) -> None:
    project = kit.project
    if place == "two directories":
        project = kit.directory / f"other-of-{name}"
        shutil.copytree(kit.project / ".toolcell", project / ".toolcell")
    async with (
        started(name, kit, home, kit.project, project) as one,
        started(name, kit, home, project, kit.project) as two,
    ):
        for agent, mark in ((one, "first"), (two, "second")):
            await agent.says(agent.use("kit_waits", name=f"{name}-{mark}"), prompt=mark)
        await until((kit.project / f"{name}-first.there").exists)
        await until((project / f"{name}-second.there").exists)
        await one.stops()
        await until((kit.project / f"{name}-first.stopped").exists)
        await until(lambda: kit.status().calls == 1)
        assert not (project / f"{name}-second.stopped").exists()
        await two.stops()
        await until((project / f"{name}-second.stopped").exists)
        await until(lambda: kit.status().calls == 0)


@pytest.mark.parametrize("name", AGENTS)
async def test_control_c_stops_the_tool_and_the_program_goes_on(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    mark = f"{name}-c"
    async with started(name, kit, home) as agent:
        await agent.says(agent.use("kit_waits", name=mark), prompt="wait")
        await until((kit.project / f"{mark}.there").exists)
        agent.screen.press("C-c")
        await agent.screen.shows(STOPPED[name])
        await until((kit.project / f"{mark}.stopped").exists)
        await until(lambda: kit.status().calls == 0)
        use = agent.use("kit_echo", text="still here")
        await agent.says(use, prompt="again")
        assert "still here" in await agent.result(use, "again")


WORKS = """
from toolcell import ToolContext, tool

@tool
def works(context: ToolContext) -> str:
    context.log.warning("a record of the log")
    context.progress(1, 4, "one of four")
    open("first").close()  # a FIFO: until the test opens it
    context.update("the first half")
    open("second").close()
    return "whole"
"""


@pytest.mark.parametrize("name", AGENTS)
async def test_progress_and_an_update_are_shown_while_the_tool_runs_and_a_log_is_not(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    kit.tool("works", WORKS)
    for mark in ("first", "second"):
        (kit.project / mark).unlink(missing_ok=True)
        os.mkfifo(kit.project / mark)
    async with started(name, kit, home) as agent:
        use = agent.use("works")
        await agent.says(use, prompt="work")
        assert "a record of the log" not in await agent.screen.shows("one of four")
        (kit.project / "first").open("w").close()
        await agent.screen.shows("the first half", without=["one of four"])
        (kit.project / "second").open("w").close()
        assert "whole" in await agent.result(use, "work")
        assert "the first half" not in await agent.screen.shows("work: that is all.")
