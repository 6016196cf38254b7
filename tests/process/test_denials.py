"""What a cell refuses names itself: to the model in the result, with the command that explains it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("daemon")]

TOOLS = """
import asyncio, os, socket, subprocess, urllib.request
from pathlib import Path
from toolcell import ToolContext, tool

@tool
def protected() -> None:
    Path(".toolcell/tools/own.py").write_text("x")

@tool
def outside(path: str) -> None:
    Path(path).write_text("x")

@tool
def reads(path: str) -> str:
    return Path(path).read_text()

@tool(read_only=True)
def still() -> None:
    Path("new.txt").write_text("x")

@tool
def program() -> None:
    subprocess.run(["no-such-program"])

@tool
def with_a_cause(context: ToolContext) -> None:
    raise RuntimeError("it failed") from FileNotFoundError(2, "No such file", "data.txt")

@tool
def name() -> None:
    urllib.request.urlopen("http://api.example.com/")

@tool
def database() -> None:
    try:
        socket.create_connection(("192.0.2.7", 5432))
    except OSError as error:
        raise RuntimeError("no database") from error

@tool
async def dials() -> None:
    await asyncio.open_connection("db.example.com", "5432")

@tool
def bare() -> None:
    socket.socket().connect(("192.0.2.7", 5432))

@tool
def variable() -> str:
    return os.environ["API_KEY"]

@tool
def own_key() -> str:
    return {}["API_KEY"]

@tool
def asks() -> str:
    return input("name? ")

@tool
async def asks_later() -> str:
    return input()

@tool
def secret() -> str:
    import getpass
    return getpass.getpass()

@tool
def stops() -> None:
    breakpoint()

@tool
def wraps() -> None:
    try:
        input()
    except EOFError as error:
        raise RuntimeError("no name") from error

@tool
def own_end() -> None:
    raise EOFError("the archive is cut")

@tool
def own_fault() -> None:
    Path("absent.txt").read_text()

@tool
def own_mode() -> None:
    os.open("absent/x", os.O_WRONLY)
"""


@pytest.fixture(params=["strict", "baseline"])
def daemon(make_daemon: Callable[[], RunningDaemon], request: pytest.FixtureRequest) -> RunningDaemon:
    daemon = make_daemon()
    daemon.config.write_text(f'[defaults]\nsandbox = "{request.param}"\n')
    daemon.tool("denied", TOOLS)
    daemon.start()
    return daemon


async def said(daemon: RunningDaemon, tool: str, **arguments: str) -> str:
    async with daemon.connect() as session:
        outcome = await session.call(f"denied_{tool}", arguments)
    if outcome.cause == "no_sandbox":
        pytest.skip(outcome.message)
    assert outcome.kind == "tool_error", outcome
    return outcome.text


@pytest.mark.slow
async def test_what_the_cell_refuses_is_named_and_the_tools_own_faults_are_not(daemon: RunningDaemon) -> None:
    if "strict" in daemon.config.read_text():  # Landlock alone cannot protect a place within a writable one
        text = await said(daemon, "protected")
        assert ".toolcell/tools/own.py is protected." in text
        assert "toolcell explain denied_protected " in text
    text = await said(daemon, "outside", path="/usr/new")
    assert "…/new is not open for this to the cell of this tool. " in text
    assert "toolcell explain denied_outside /path/of/new" in text
    assert "new.txt is not open for this" in await said(daemon, "still")
    text = await said(daemon, "program")
    assert "finds no program 'no-such-program' in its PATH" in text
    assert "toolcell explain denied_program no-such-program" in text
    text = await said(daemon, "name")
    strict = "strict" in daemon.config.read_text()
    for tool, place, entry in (
        ("name", "api.example.com:80", "api.example.com"),
        ("database", "192.0.2.7:5432", "192.0.2.7:5432"),
        ("dials", "db.example.com:5432", "db.example.com:5432"),
        ("bare", "", "HOST"),
    ):
        text = await said(daemon, tool)
        assert text.startswith(f"This tool has no network{place and f', so it cannot reach {place}'}.\n"), (
            text
        )
        assert text.count("toolcell ") == 2, text  # the project is not trusted: to grant it, and to trust it
        granted = f"'[\"{entry}\"]'" if strict else "true"
        assert f"toolcell config set tool.denied_{tool}.network {granted}\n" in text
    assert (
        "The cell of this tool has no variable API_KEY. "
        "To see which rule says so: toolcell explain denied_variable API_KEY"
        in await said(daemon, "variable")
    )
    for tool in ("asks", "asks_later", "secret", "wraps"):
        text = await said(daemon, tool)
        assert (
            "The cell of this tool has no terminal to read from. To ask the user: await context.ui.input(…)"
            in text
        )
    assert "no terminal to read from. A breakpoint works where a test calls the function" in await said(
        daemon, "stops"
    )
    assert "terminal" not in await said(daemon, "own_end")
    for tool in ("own_fault", "own_mode", "own_key", "with_a_cause"):
        assert "toolcell explain" not in await said(daemon, tool)
