"""What a person sees of the tools in OpenCode's terminal program, and what their keys do."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import psutil
import pytest
from tests.adapters.openai import Model
from tests.adapters.opencode.serve import PROGRAM, environment_of, until
from tests.adapters.opencode.test_plugin import gone, there
from tests.adapters.script import Use
from tests.adapters.terminal import TMUX, Terminal, terminal
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import plugin_entry

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.nightly,
    pytest.mark.timeout(240),
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed"),
]

TABLES = """
    import time
    from pathlib import Path

    from toolcell import ToolContext, tool

    @tool
    async def drop(table: str, context: ToolContext) -> str:
        await context.ask(f"Drop {table}, which has 3 rows?", patterns=[table], always=["t_*"])
        Path(context.directory, f"{table}.dropped").touch()
        return f"dropped {table}"

    @tool(destructive=True)
    def wipe(disk: str, context: ToolContext) -> str:
        Path(context.directory, f"{disk}.wiped").touch()
        return f"wiped {disk}"

    @tool
    def builds(context: ToolContext) -> str:
        context.progress(2, 5, "linking libone")
        wait(context, "linked")
        context.update("compiled main.c")
        wait(context, "compiled")
        return "built"

    def wait(context: ToolContext, name: str) -> None:
        while not Path(context.directory, name).exists():
            time.sleep(0.02)
    """


@pytest.fixture(scope="module")
async def program(kit: RunningDaemon, model: Model) -> AsyncGenerator[Terminal]:
    """The program in a terminal, in the project of the daemon; one for all tests, as its start takes most of their time."""
    kit.tool("db", TABLES)
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as home:
        environment = environment_of(Path(home), model, plugin=[plugin_entry(socket=kit.socket, start=False)])
        async with terminal([str(PROGRAM)], environment, kit.project) as program:
            await program.shows("Ask anything")
            yield program


@pytest.fixture
def screen(program: Terminal, model: Model) -> Terminal:
    """The program's screen, before a model that has said all that it had to say."""
    model.script.turns.clear()
    model.script.requests.clear()
    return program


@pytest.fixture
def spared(program: Terminal, spared: Callable[[], frozenset[int]]) -> Callable[[], frozenset[int]]:
    """The daemon and the terminal that stay."""

    def pids() -> frozenset[int]:
        terminals = (child.pid for child in psutil.Process().children() if child.name().startswith("tmux"))
        return spared() | frozenset(terminals)

    return pids


async def say(screen: Terminal, text: str) -> None:
    """Send a message."""
    screen.type(text)
    await screen.shows(text)
    screen.press("Enter")


async def test_a_question_is_read_before_it_is_allowed(
    kit: RunningDaemon, model: Model, screen: Terminal
) -> None:
    dropped = kit.project / "t_users.dropped"
    model.script.uses(Use("db_drop", {"table": "t_users"}), then="That is done.")
    await say(screen, "drop it")
    await screen.shows("Permission required", "db_drop: Drop t_users, which has 3 rows?", "Allow once")
    assert not dropped.exists()
    screen.press("Enter")
    await screen.shows("That is done.", without=["Permission required"])
    assert dropped.exists()


async def test_a_question_that_is_allowed_for_good_is_not_put_again(
    kit: RunningDaemon, model: Model, screen: Terminal
) -> None:
    model.script.uses(Use("db_drop", {"table": "t_one"}), then="The first is done.")
    await say(screen, "drop one")
    await screen.shows("db_drop: Drop t_one, which has 3 rows?")
    screen.press("Right", "Enter")
    await screen.shows("Always allow", "t_*")
    screen.press("Enter")
    await screen.shows("The first is done.")
    model.script.uses(Use("db_drop", {"table": "t_two"}), then="The second is done.")
    await say(screen, "drop two")
    await screen.shows("The second is done.")
    assert (kit.project / "t_two.dropped").exists()


async def test_a_question_that_is_rejected_ends_the_turn(
    kit: RunningDaemon, model: Model, screen: Terminal
) -> None:
    model.script.uses(Use("db_drop", {"table": "kept"}), then="never said")
    await say(screen, "leave it")
    await screen.shows("Drop kept, which has 3 rows?")
    screen.press("Escape")
    await screen.shows("leave it", without=["Permission required", "esc interrupt"])
    assert not (kit.project / "kept.dropped").exists()
    assert len(model.script.requests) == 1


async def test_a_destructive_tool_asks_before_it_runs(
    kit: RunningDaemon, model: Model, screen: Terminal
) -> None:
    wiped = kit.project / "sda.wiped"
    model.script.uses(Use("db_wipe", {"disk": "sda"}), then="It is empty.")
    await say(screen, "wipe it")
    await screen.shows("Call tool db_wipe", "disk=sda", "Allow once")
    assert not wiped.exists()
    screen.press("Enter")
    await screen.shows("It is empty.")
    assert wiped.exists()


async def test_escape_twice_stops_a_running_tool(kit: RunningDaemon, model: Model, screen: Terminal) -> None:
    use = Use("kit_waits", {"name": "seen"})
    model.script.uses(use)
    await say(screen, "wait")
    process = await there(kit, use)
    await screen.shows("kit_waits", "esc interrupt")
    screen.press("Escape")
    await screen.shows("esc again to interrupt")
    screen.press("Escape")
    assert await gone(process)
    await until((kit.project / "seen.stopped").exists)
    await screen.shows("interrupted")


async def test_how_far_a_tool_is_can_be_seen(kit: RunningDaemon, model: Model, screen: Terminal) -> None:
    model.script.uses(Use("db_builds"), then="It is built.")
    await say(screen, "build")
    await screen.shows("db_builds", "2/5 linking libone")
    (kit.project / "linked").touch()
    await screen.shows("compiled main.c")
    (kit.project / "compiled").touch()
    await screen.shows("It is built.")
