"""The tools that ship with Toolcell, through a real daemon: offered where they are switched on, each in its cell."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.daemons import ROOMY, RunningDaemon

from toolcell.client import Session

pytestmark = pytest.mark.anyio

ON = '[daemon]\npacks = ["builtin"]\n'
GIT = {"git-status", "git-diff-summary", "workspace-info"}
MINE = """
from toolcell import tool

@tool(name="git-status")
def mine() -> str:
    return "mine"
"""


def make_repository(directory: Path) -> None:
    plain = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": "/",
    }
    for command in (("init", "--initial-branch", "trunk"), ("config", "core.fsmonitor", "false; echo")):
        subprocess.run(["git", *command], cwd=directory, env=plain, check=True, capture_output=True)


async def text_of(session: Session, tool: str, **arguments: object) -> str:
    outcome = await session.call(tool, arguments)
    assert outcome.ok, outcome
    return outcome.text


@pytest.mark.slow
async def test_they_are_offered_where_they_are_switched_on_and_work_in_their_cells(
    daemon: RunningDaemon,
) -> None:
    make_repository(daemon.project)
    (daemon.project / "new.txt").write_text("one\ntwo\n")
    async with daemon.connect() as session:
        assert not session.catalog.tools
    daemon.configure(ON)
    async with daemon.connect() as session:
        await session.described()
        assert set(session.catalog.tools) == {*GIT, "file-reader"}
        assert {(tool.scope, tool.read_only) for tool in session.catalog.tools.values()} == {
            ("builtin", True)
        }
        assert "?? new.txt" in await text_of(session, "git-status")
        assert await text_of(session, "git-diff-summary") == ""
        assert json.loads(await text_of(session, "workspace-info"))["branch"] == "trunk"
        assert await text_of(session, "file-reader", path="new.txt", startLine=2) == "two\n"


async def test_an_agent_that_reads_files_itself_gets_no_file_reader(daemon: RunningDaemon) -> None:
    daemon.configure(ON)
    async with daemon.connect(agent="claude-code") as session:
        await session.described()
        assert set(session.catalog.tools) == GIT
        outcome = await session.call("file-reader", {"path": "x"})
        assert (outcome.kind, outcome.cause) == ("refused", "not_allowed")


async def test_their_names_are_protected_until_the_user_says_otherwise(daemon: RunningDaemon) -> None:
    daemon.configure(ON)
    daemon.tool("mine", MINE)
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.tools["git-status"].scope == "builtin"
        (problem,) = session.catalog.problems
        assert (problem.tool, problem.reason) == ("git-status", "rejected")
        assert "toolcell config set tool.git-status.overrides_builtin true" in problem.message
    daemon.configure("[tool.git-status]\noverrides_builtin = true\n")
    async with daemon.connect() as session:
        await session.described()
        found = session.catalog.tools["git-status"]
        assert (found.scope, found.overrides_builtin) == ("local", True)
        assert await text_of(session, "git-status") == "mine"


async def test_a_source_of_a_packs_name_has_no_other_directory(daemon: RunningDaemon) -> None:
    daemon.config.write_text('[source.builtin]\ndirectory = "/tmp"\n')
    with pytest.raises(Exception, match="is built in"):
        daemon.reload()


@pytest.mark.slow
async def test_the_squad_pack_works_in_its_cells_and_per_session(daemon: RunningDaemon) -> None:
    daemon.config.write_text(f'{ROOMY.format(directory=daemon.directory)}\n[daemon]\npacks = ["squad"]\n')
    daemon.reload()
    async with daemon.connect(deny=["squad_route"]) as session:
        squad = {"squad_decide", "squad_memory", "squad_skill", "squad_status"}
        assert set(session.catalog.tools) == squad  # a leaf agent has a part of the set
        decided = await session.call("squad_decide", {"title": "A b", "body": "c", "agentName": "fenster"})
        assert decided.ok
        assert (daemon.project / ".squad/decisions/inbox/fenster-a-b.md").exists()
        assert (await session.call("squad_memory", {"agentName": "fenster", "learning": "x"})).ok
        skill = {"action": "write", "skillName": "long", "content": "line\n" * 4000}
        assert (await session.call("squad_skill", skill)).ok
        long = await session.call("squad_skill", {"action": "read", "skillName": "long"})
        assert len(long.text.encode()) <= 10 * 1024
        assert long.output is not None
        failed = await session.call("squad_memory", {"agentName": "..", "learning": "x"})
        assert failed.kind == "tool_error"
        assert failed.details == {"resultType": "failure", "error": "refused"}
        status = await session.call("squad_status")
        assert "session.list" in status.text  # no agent is here whose sessions it could list
    async with daemon.connect() as session:
        outcome = await session.call("squad_route", {"targetAgent": "", "task": "x"})
        assert outcome.kind == "invalid_arguments"
