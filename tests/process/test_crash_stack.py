"""A tool that a signal ends is told with the lines of Python that it was at: to the model, and in the daemon's log."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

TOOLS = """
import ctypes, os, signal, sys, threading
from toolcell import tool

def inner(how: str) -> None:
    if how == "null":
        ctypes.string_at(0)
    if how == "abort":
        os.abort()
    os.kill(os.getpid(), getattr(signal, how))

def down(n: int) -> None:
    ctypes.string_at(0) if n == 0 else down(n - 1)

@tool
def crash(how: str) -> str:
    print("my last words", file=sys.stderr, flush=True)
    down(300) if how == "deep" else inner(how)
    return "alive"

@tool(isolation="call")
async def apart(how: str) -> str:
    inner(how)
    return "alive"

@tool
def closed() -> str:
    os.close(2)
    inner("null")
    return "alive"
"""


@pytest.mark.parametrize("tool", ["crash", "apart"])
@pytest.mark.parametrize(
    ("how", "signal"),
    [
        ("null", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("SIGBUS", "SIGBUS"),
        ("SIGFPE", "SIGFPE"),
        ("SIGILL", "SIGILL"),
    ],
)
async def test_a_crash_is_told_with_the_lines_that_it_was_at(
    daemon: RunningDaemon, tool: str, how: str, signal: str
) -> None:
    daemon.tool("t", TOOLS)
    async with daemon.connect() as session:
        outcome = await session.call(f"t_{tool}", {"how": how})
    assert (outcome.kind, outcome.cause) == ("crashed", signal)
    lines = outcome.message.splitlines()
    assert lines[0].endswith(" It was here, the last call at the end:")
    assert 'File "…/t.py", line ' in lines[1], outcome.message
    assert lines[1].endswith(f", in {tool}")
    assert lines[2].endswith(", in inner")
    assert ("my last words" in lines) == (tool == "crash")
    assert "Fatal Python error" not in outcome.message


async def test_a_deep_stack_is_cut_at_its_outer_end(daemon: RunningDaemon) -> None:
    daemon.tool("t", TOOLS)
    async with daemon.connect() as session:
        outcome = await session.call("t_crash", {"how": "deep"})
    assert outcome.message.count(", in down") == 9
    assert outcome.message.splitlines()[-2].endswith(", in string_at")


async def test_a_tool_that_closed_its_stderr_crashes_without_the_lines(daemon: RunningDaemon) -> None:
    daemon.tool("t", TOOLS)
    async with daemon.connect() as session:
        outcome = await session.call("t_closed", {})
    assert (outcome.kind, outcome.cause) == ("crashed", "SIGSEGV")
    assert "It was here" not in outcome.message


async def test_the_daemons_log_has_the_lines(daemon: RunningDaemon) -> None:
    daemon.tool("t", TOOLS)
    async with daemon.connect() as session:
        await session.call("t_crash", {"how": "null"})
    assert ", in inner; File " in daemon.log.read_text()
