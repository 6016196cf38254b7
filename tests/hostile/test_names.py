"""Protected names: no tool makes one, in whatever way; and what the user makes while a tool runs is left alone."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.daemons import RunningDaemon, make_daemon, running_daemon
from tests.hostile.guard import GUARDED

from toolcell.client import Outcome, connect

__all__ = ["make_daemon"]

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

NUMBERS: Final = itertools.count()
ATTACKS: Final = Path(__file__).parent / "name_attacks" / "make_names.py"
CONFIG: Final = 'trust = "all"\n[defaults]\nsandbox = "{profile}"\ntimeout = 60\nprocesses = 64\n'
REFUSED: Final = {"EACCES", "EPERM", "ENOSYS", "EXDEV", "EAFNOSUPPORT", "ENOENT", "EFAULT"}
"""How a try may fail. With ENOENT, for an exchange, nothing was there to exchange; with EFAULT the name could not be read."""
PROTECTED: Final = {
    ".git", ".GIT", ".idea", "git~1", ".vscode", ".envrc", "CLAUDE.local.md", "team.code-workspace", "agents", "copilot-instructions.md",
}  # fmt: skip


@pytest.fixture(scope="module", params=["strict", "baseline"])
def confined(request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    if not GUARDED:
        pytest.skip("this host has no guards")
    with running_daemon(config=CONFIG.format(profile=request.param)) as daemon:
        yield daemon


class Place:
    """A project with the tool in it."""

    def __init__(self, daemon: RunningDaemon, directory: Path) -> None:
        self.daemon = daemon
        self.root = directory
        tools = directory / ".toolcell" / "tools"
        tools.mkdir(parents=True)
        shutil.copy(ATTACKS, tools / "make.py")

    async def call(self, tool: str, **arguments: str) -> Outcome:
        async with connect(self.daemon.socket, daemon="running", directory=self.root) as session:
            return await session.call(f"make_{tool}", arguments)

    def protected(self) -> list[str]:
        """What is there of protected names, below the project; `gh/agents` counts only in a `.github`."""
        return [
            os.path.join(where, name)
            for where, directories, files in os.walk(self.root)
            for name in (*directories, *files)
            if name in PROTECTED and not (name == "agents" and not where.endswith("/.github"))
        ]


@pytest.fixture
def place(confined: RunningDaemon) -> Iterator[Place]:
    yield Place(confined, confined.directory / "places" / str(next(NUMBERS)))
    confined.settle()


async def test_no_way_of_the_kernel_makes_a_protected_name(place: Place) -> None:
    outcome = await place.call("names")
    assert outcome.ok, outcome.message
    came = json.loads(outcome.text)
    assert len(came) > 45
    assert {name: how for name, how in came.items() if how not in REFUSED} == {}
    assert place.protected() == []
    assert outcome.facts.moved_aside == ()


async def test_nothing_is_made_after_the_result_either(place: Place) -> None:
    outcome = await place.call("later")
    assert outcome.ok, outcome.message
    place.daemon.settle()  # the worker is gone, with its timer and its exit functions
    assert place.protected() == []
    assert not list(place.root.glob("*moved-aside*"))


@pytest.mark.parametrize("name", [".git", ".venv", ".vscode", ".github/agents"])
async def test_what_the_user_makes_while_a_tool_runs_stays_and_is_not_written_by_it(
    place: Place, name: str
) -> None:
    call = asyncio.create_task(place.call("meddle", place=name))
    while not (place.root / "waiting").exists():
        await asyncio.sleep(0.01)
    made = place.root / name
    if name == ".git":
        git = await asyncio.create_subprocess_exec("git", "init", "-q", str(place.root))
        assert await git.wait() == 0
    made.mkdir(parents=True, exist_ok=True)
    before = sorted(path.name for path in made.iterdir())
    (made / "ready").write_text("ours")
    outcome = await call
    assert outcome.text == " ".join(["EACCES"] * 10), outcome
    assert sorted(path.name for path in made.iterdir()) == sorted([*before, "ready"])
    assert (made / "ready").read_text() == "ours"
    assert (outcome.facts.moved_aside, outcome.notes) == ((), ())


USERS_COMMANDS: Final = (
    ("git", "init", "-q"),
    (sys.executable, "-m", "venv", "--without-pip", ".venv"),
    (
        "sh",
        "-c",
        "mkdir .vscode && echo {} > .vscode/settings.json && echo > .envrc && mkdir -p .github/agents",
    ),
    (sys.executable, "-m", "toolcell.cli", "new", "typescript", ".opencode/tools/hello.ts"),
    (sys.executable, "-m", "toolcell.cli", "mcp", "install", "claude", "--project", "--write"),
    (sys.executable, "-m", "toolcell.cli", "mcp", "install", "cursor", "--project", "--write"),
)
MADE: Final = (
    ".git/HEAD", ".venv/pyvenv.cfg", ".vscode/settings.json", ".envrc", ".github/agents", ".opencode/tools/hello.ts", ".mcp.json",
    ".cursor/mcp.json",
)  # fmt: skip


@pytest.mark.parametrize("profile", ["strict", "baseline", "none"])
async def test_what_the_users_commands_make_while_a_tool_runs_stays(
    make_daemon: Callable[..., RunningDaemon], tmp_path: Path, profile: str
) -> None:
    if not GUARDED and profile != "none":
        pytest.skip("this host has no guards")
    daemon = make_daemon(config=CONFIG.format(profile=profile))
    daemon.start()
    place = Place(daemon, daemon.directory / "place")
    call = asyncio.create_task(place.call("wait_until", place="go"))
    while not (place.root / "waiting").exists():
        await asyncio.sleep(0.01)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    for command in USERS_COMMANDS:
        done = await asyncio.create_subprocess_exec(*command, cwd=place.root, env=environment)
        assert await done.wait() == 0, command
    (place.root / "go").touch()
    outcome = await call
    assert outcome.ok, outcome
    await place.call("wait_until", place="go")
    daemon.settle()
    assert [name for name in MADE if not (place.root / name).exists()] == []
    assert not list(place.root.rglob("*moved-aside*"))
    assert (outcome.facts.moved_aside, outcome.notes) == ((), ())


async def test_the_guard_has_nothing_open_when_its_caller_goes_on(place: Place) -> None:
    outcome = await place.call("exclusive")
    assert outcome.text == "0", outcome


async def test_signals_and_killed_callers_double_nothing_and_stop_nobody(place: Place) -> None:
    outcome = await place.call("interrupted")
    assert outcome.text == "True 2000 1000", outcome


async def test_who_waits_for_the_reader_of_a_pipe_can_be_aborted(place: Place) -> None:
    async with connect(place.daemon.socket, daemon="running", directory=place.root) as session:
        call = session.call("make_wait_for_a_reader")
        while not (place.root / "waiting").exists():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        call.abort()
        outcome = await call
    assert (outcome.kind, outcome.stopped) == ("aborted", "settled"), outcome


async def test_a_tool_does_what_tools_do(place: Place) -> None:
    outcome = await place.call("usual")
    assert outcome.ok, outcome.message
    mode, errors, made = json.loads(outcome.text)
    assert (mode, errors) == ("0o640", "")
    assert {
        "masked",
        "link",
        "pipe",
        "sh1",
        "sh2",
        "d3",
        "d4",
        "sorted",
        "x.db",
        "found",
        "t.tar",
        "un",
        "all",
    } <= set(made)
    assert (place.root / "masked").read_text() == "pla"


async def test_a_refusal_names_the_place_and_the_grant_makes_it_possible(place: Place) -> None:
    (place.root / ".toolcell" / "tools" / "one.py").write_text(
        "from toolcell import tool\n\n@tool\ndef one() -> str:\n    open('.envrc', 'w').close()\n    return 'made'\n"
    )
    async with connect(place.daemon.socket, daemon="running", directory=place.root) as session:
        refused = await session.call("one")
    assert ".envrc is protected. To see which rule says so: toolcell explain one" in refused.message
    place.daemon.configure(
        f'[profile.mine]\nwritable = ["{place.root}/.envrc"]\n[tool.one]\nsandbox = "mine"\n'
    )
    async with connect(place.daemon.socket, daemon="running", directory=place.root) as session:
        granted = await session.call("one")
    assert granted.ok, granted.message
    assert (place.root / ".envrc").exists()
