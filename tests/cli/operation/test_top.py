"""`toolcell top` without a terminal: one table, and what it says where something is missing."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Project

TOOLS = """
import os
from toolcell import tool

@tool
def hello() -> str:
    return "hello"

@tool
def dies() -> None:
    os.abort()
"""
USAGE = 2
UNAVAILABLE = 69


def test_one_table_is_printed_where_no_terminal_is(own_daemon: Project) -> None:
    own_daemon.tool("t", TOOLS)
    assert own_daemon.run("call", "t_hello").code == 0
    assert own_daemon.run("call", "t_dies").code != 0
    done = own_daemon.run("top", "--list", "tools")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["daemon", "host", "calls", "ended"]
    headings = ["TOOL", "OPEN", "CALLS", "/MIN", "FAILED", "MEDIAN", "P95", "LAST"]
    assert headings in [line.split() for line in lines]
    rows = [line.split() for line in lines if line.startswith("t_")]
    assert [(row[0], row[2], row[4]) for row in rows] == [
        ("t_dies", "1", "1"),
        ("t_hello", "1", "0"),
    ]
    assert "SIGABRT" in own_daemon.run("top", "--once", "--list", "deaths").out


@pytest.mark.sampled(one_in=3, rest="slow")
@pytest.mark.parametrize("name", ["calls", "workers", "sessions", "tools", "deaths"])
def test_each_list_is_printed_as_json(daemon: Project, name: str) -> None:
    daemon.tool("t", TOOLS)
    daemon.run("call", "t_dies")
    assert daemon.run("call", "t_hello").code == 0  # in another worker, which is idle now
    found = daemon.run("top", "--json", "--list", name, "-n", "1").json("top")
    rows = found["died" if name == "deaths" else name]
    assert len(rows) == min(found["found"], 1)
    assert name in ("calls", "sessions") or rows


def test_unknown_lists_and_orders_are_named_with_those_that_there_are(daemon: Project) -> None:
    done = daemon.run("top", "--list", "[bold]\x1b[31m")
    assert done.code == USAGE
    assert "Lists: calls, workers, sessions, tools, deaths." in done.err
    assert "\x1b" not in done.err
    done = daemon.run("top", "--list", "deaths", "--sort", "memory")
    assert done.code == USAGE
    assert "It is by: age, name." in done.err


def test_without_a_daemon_it_says_so(project: Project) -> None:
    done = project.run("top")
    assert done.code == UNAVAILABLE
    assert "toolcell serve" in done.err


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    daemon: Project, tmp_path: Path
) -> None:
    (tmp_path / "textual.py").write_text("raise ImportError('as if it were not there')")
    with daemon.screen("top", columns=250, env={"PYTHONPATH": str(tmp_path)}) as screen:
        assert screen.end() == UNAVAILABLE
    assert "Textual is not installed." in screen.text
    (command,) = re.findall(r"Install it: (.*?)\r?\n", screen.text)
    words = shlex.split(command)
    assert sys.executable in words
    assert any(word.startswith(("textual", "toolcell[top]")) for word in words)


def test_on_a_terminal_the_view_opens_and_q_leaves_it(daemon: Project) -> None:
    with daemon.screen("top", env={"TERM": "xterm-256color"}) as screen:
        screen.until("Calls")
        screen.type("4")
        screen.until("P95")
        screen.type("q")
        assert screen.end() == 0
