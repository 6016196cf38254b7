"""Names and reasons that would like to be more: each list prints them as texts, on a terminal within its width."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.cli.conftest import Project

from toolcell.cli._ui.prose import width_of
from toolcell.client import connect
from toolcell.client._launch.daemon import Running
from toolcell.client._transport.operator import operate
from toolcell_proto.v1 import operator_pb2 as op

HOSTILE = "[bold red]b[/] \x1b[31m\x1b]0;title\x07\x9b2J\r\n\u202eevil {0} %s " + "W" * 10_000
COLUMNS = 60
STYLE = re.compile(r"\x1b\[(?:0|1|31|32)m")
TOOLS = """
import os, sys
from toolcell import tool

@tool
def dies() -> None:
    print("[bold red]b[/] \\x1b[31m\\x1b]0;title\\x07\\u202eevil", "W" * 10_000, file=sys.stderr, flush=True)
    os.abort()
"""
LISTS = (
    ("calls",),
    ("calls", "--failed"),
    ("events",),
    ("audit",),
    ("sessions",),
    ("ps",),
    ("logs",),
    ("status",),
    ("top", "--once"),
    ("top", "--once", "--list", "tools"),
    ("top", "--once", "--list", "sessions"),
    ("top", "--once", "--list", "deaths"),
)


async def leave_traces(project: Project) -> None:
    """Have hostile texts wherever the daemon takes some: agent, file, tool, call, message, reason."""
    directory = project.directory / "[b]d\x1b[31m\u202e"
    tools = directory / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "t.py").write_text(TOOLS)
    async with connect(project.socket, directory=directory, daemon="running", agent=HOSTILE[:200]) as session:
        await session.described(tool="t_dies")
        await session.call("t_dies", {}, call_id="c-1", agent_name=HOSTILE[:200], message_id=HOSTILE[:200])
        await session.call(HOSTILE, {})
        await session.call("t_dies", {"surplus": HOSTILE})
        async with operate(Running(project.socket)) as client:
            await client.ask(client.operator.AbortCalls, op.AbortCallsRequest(all=True, reason=HOSTILE))
            await client.ask(client.operator.RestartWorkers, op.RestartWorkersRequest(reason=HOSTILE))
            disable = op.DisableToolRequest(tool="t_dies", reason=HOSTILE)
            await client.ask(client.operator.DisableTool, disable)
            await client.ask(client.operator.EnableTool, op.EnableToolRequest(tool="t_dies", reason=HOSTILE))
            await client.ask(
                client.operator.QuarantineTool, op.QuarantineToolRequest(tool="t_dies", reason=HOSTILE)
            )
            await client.ask(client.operator.Release, op.ReleaseRequest(tool="t_dies"))


@pytest.mark.slow
def test_hostile_names_are_printed_as_texts_by_each_list(own_daemon: Project) -> None:
    asyncio.run(leave_traces(own_daemon))
    for words in LISTS:
        done = own_daemon.run(*words)
        assert done.code == 0, (words, done)
        controls = {letter for letter in done.out + done.err if not letter.isprintable()} - {"\n", "\t"}
        assert controls == set(), words
        with own_daemon.screen(*words, columns=COLUMNS, env={"TERM": "xterm"}, forked=True) as screen:
            assert screen.end() == 0, words
        plain = STYLE.sub("", screen.text).replace("\r\n", "\n")
        assert {letter for letter in plain if not letter.isprintable()} - {"\n", "\t"} == set(), words
        if words != ("logs",):  # a tool's lines stay as they are
            assert max(map(width_of, plain.split("\n"))) <= COLUMNS, words
    told = own_daemon.run("events").out + own_daemon.run("audit").out + own_daemon.run("calls").out
    assert told.count("[bold red]b[/]") > 5
