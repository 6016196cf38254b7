"""MCP servers that a project ships in its `.mcp.json`, through a real daemon: nothing of them happens before trust."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from tests.daemons import RunningDaemon
from tests.process.test_mcp_servers import PLAIN, follow, processes, text_of, until

from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio

MARKING: Final = """
import runpy, sys
open(sys.argv.pop(1), "a").write("started\\n")
runpy.run_path(sys.argv[0].replace("marking.py", "plain.py"), run_name="__main__")
"""


def ship(project: Path, mark: Path, **more: Any) -> None:
    """Write an `.mcp.json` whose server leaves a line in a file whenever it is started."""
    shutil.copy(PLAIN, project / "plain.py")
    (project / "marking.py").write_text(MARKING)
    entry = {"command": sys.executable, "args": ["-I", "${CLAUDE_PROJECT_DIR}/marking.py", str(mark)], **more}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"plain": entry}}))


@pytest.fixture(autouse=True)
def confined(daemon: RunningDaemon) -> None:
    """Have the daemon trust nothing by itself, as one of a user does."""
    daemon.config.write_text('trust = "confined"\n')
    daemon.reload()


def shown(daemon: RunningDaemon) -> op.GetTrustResponse:
    request = op.GetTrustRequest(directory=str(daemon.project))
    return daemon.ask("Operator/GetTrust", request, op.GetTrustResponse)


def trust(daemon: RunningDaemon) -> None:
    """Trust the project as a person does: what is described only then is asked for in a second round."""
    for _ in range(2):
        request = op.TrustRequest(directory=str(daemon.project), digest=shown(daemon).digest)
        daemon.ask("Operator/Trust", request, op.TrustResponse)


async def prepared(daemon: RunningDaemon) -> list[str]:
    async with daemon.operate() as client:
        answers = client.watch(client.operator.Prepare, op.PrepareRequest(directory=str(daemon.project)))
        return [f"{it.state} {it.message}" async for it in answers]


async def test_a_server_is_started_only_as_it_was_shown(daemon: RunningDaemon) -> None:
    mark = daemon.project / "mark"
    ship(daemon.project, mark)
    async with daemon.connect() as session:
        await session.described(60)
        assert session.catalog.tools == {}
        (problem,) = session.catalog.problems
        assert problem.message.startswith(
            f"plain is not started before it is trusted as it is: {daemon.project} is"
        )
        assert f"toolcell trust {daemon.project}" in problem.message
        asked = shown(daemon)
        assert asked.state == "untrusted"
        (file,) = asked.files
        assert "marking.py" in file.gets[0]
        assert str(mark) in file.gets[0]
        assert not mark.exists()

        trust(daemon)
        assert shown(daemon).state == "trusted"
        await session.reload()
        assert await text_of(session, "plain_echo", text="a") == "a"
        assert len(processes(f"{daemon.project}/marking.py")) == 1
        starts = mark.read_text()

        ship(daemon.project, mark, args=["-I", "${CLAUDE_PROJECT_DIR}/marking.py", str(mark), "more"])
        await session.reload()
        await session.described(60)
        assert "plain_echo" not in session.catalog.tools
        (problem,) = session.catalog.problems
        assert "the MCP server plain of .mcp.json has another command than when" in problem.message
        assert shown(daemon).state == "changed"
        assert mark.read_text() == starts


async def test_a_session_that_follows_sees_another_command_and_calls_of_it_are_refused(
    daemon: RunningDaemon,
) -> None:
    mark = daemon.project / "mark"
    ship(daemon.project, mark)
    trust(daemon)
    async with daemon.connect(on_catalog=follow) as session:
        await until(lambda: "plain_echo" in session.catalog.tools)
        assert await text_of(session, "plain_echo", text="a") == "a"
        ship(daemon.project, mark, env={"NODE_OPTIONS": "--require ./evil.js"})
        await until(lambda: "plain_echo" not in session.catalog.tools)
        ship(daemon.project, mark)
        await until(lambda: "plain_echo" in session.catalog.tools)
        request = op.DistrustRequest(directory=str(daemon.project))
        daemon.ask("Operator/Distrust", request, op.DistrustResponse)
        refused = await session.call("plain_echo", {"text": "a"})
        assert refused.kind == "refused", refused
        assert "toolcell trust" in refused.message


@pytest.mark.slow
async def test_a_trust_in_the_code_of_now_has_no_server(daemon: RunningDaemon) -> None:
    mark = daemon.project / "mark"
    tools = daemon.project / ".toolcell" / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "one.py").write_text("from toolcell import tool\n@tool\ndef one() -> str:\n    return '1'\n")
    async with daemon.connect() as session:
        await session.described(60)
        request = op.TrustRequest(directory=str(daemon.project), digest=shown(daemon).digest, pinned=True)
        daemon.ask("Operator/Trust", request, op.TrustResponse)
        ship(daemon.project, mark)
        await session.reload()
        await session.described(60)
        assert session.catalog.tools.keys() == {"one"}
        assert not mark.exists()
        request = op.TrustRequest(directory=str(daemon.project), digest=shown(daemon).digest, pinned=True)
        with pytest.raises(grpc.RpcError, match="cannot be pinned"):
            daemon.ask("Operator/Trust", request, op.TrustResponse)


@pytest.mark.slow
async def test_nothing_is_installed_for_a_server_before_trust(daemon: RunningDaemon) -> None:
    entries = {
        "a": {"command": "npx", "args": ["-y", "no-such-package@1.0.0"]},
        "b": {"command": "uvx", "args": ["no-such-package==1.0.0"]},
    }
    (daemon.project / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    found = await prepared(daemon)
    assert [text.split()[0] for text in found] == ["refused", "refused"], found
    assert all("nothing is installed for what is not trusted" in text for text in found)


LARGE: Final = "[" * 300_000
MANY: Final = json.dumps({"mcpServers": {f"s{number}": {"command": "x"} for number in range(65)}})
NAMED: Final = json.dumps({"mcpServers": {"\x1b[31m/../x": {"command": "x"}}})
CASES: Final = {
    "no JSON": ("{", "is not JSON"),
    "no object": ("[]", "has no mcpServers"),
    "too deep": ("[" * 200_000, "is nested too deeply"),
    "too large": (LARGE, "has more than 256 KiB"),
    "too many": (MANY, "has more than 64 servers"),
    "no name": (NAMED, "has a server named"),
    "another word": ('{"mcpServers": {"a": {"command": "${HOME}/x"}}}', "is replaced by nothing here"),
    "another key": (
        '{"mcpServers": {"a": {"command": "x", "cwd": "/"}}}',
        "has cwd, which is not known here",
    ),
    "a number": ('{"mcpServers": {"a": {"command": "x", "args": [1]}}}', "that is no text"),
    "no variable": ('{"mcpServers": {"a": {"command": "x", "env": {"A B": "c"}}}}', "whose name is none"),
    "docker": ('{"mcpServers": {"a": {"command": "docker"}}}', "gives every client the whole machine"),
    "a program of it": ('{"mcpServers": {"a": {"command": "./x"}}}', "a program of whatever project"),
}


async def test_a_file_that_cannot_be_used_is_a_problem_of_its_own(daemon: RunningDaemon) -> None:
    path = daemon.project / ".mcp.json"
    async with daemon.connect() as session:
        for text, why in CASES.values():
            path.write_text(text)
            await session.reload()
            (problem,) = session.catalog.problems
            assert why in problem.message, problem
            assert "\x1b" not in problem.message
        path.unlink()
        (daemon.directory / "theirs").write_text('{"mcpServers": {"a": {"command": "x"}}}')
        path.symlink_to(daemon.directory / "theirs")
        await session.reload()
        assert "links of a project are not followed" in session.catalog.problems[0].message
        path.unlink()
        os.mkfifo(path)
        await session.reload()
        assert len(session.catalog.problems) == 1
        path.unlink()
        entries = {"far": {"url": "https://a.example"}, "toolcell": {"command": "toolcell", "args": ["mcp"]}}
        path.write_text(json.dumps({"mcpServers": entries}))
        await session.reload()
        assert list(session.catalog.problems) == []


@pytest.mark.slow
async def test_what_would_give_a_server_more_is_said_as_it_works(daemon: RunningDaemon) -> None:
    """Of a project's server to adopt it; of the user's own what its source takes."""
    mark = daemon.project / "mark"
    ship(daemon.project, mark)
    trust(daemon)

    def remedy(tool: str, subject: str) -> str:
        request = op.ExplainRequest(directory=str(daemon.project), tool=tool, subject=subject)
        (found,) = daemon.ask("Operator/Explain", request, op.ExplainResponse).explanations
        assert not found.allowed
        return found.remedy

    for subject in ("a.example", "A_VARIABLE", "/srv/x"):
        assert "toolcell mcp adopt --project" in remedy("plain_echo", subject)
    own = json.dumps([sys.executable, "-I", "${project}/plain.py"])
    daemon.config.write_text(f"[source.own]\nmcp = {own}\n")
    daemon.reload()
    assert "source.own.network" in remedy("own_echo", "a.example")
    said = remedy("own_echo", "no-such-program")
    assert "programs" not in said
    assert '["env", "PATH=/directory/of/no-such-program:' in said
    words = json.loads(said[said.index("[") : said.index(", …")] + "]")
    command = json.dumps([*words, sys.executable, "-I", "${project}/plain.py"])
    daemon.config.write_text(f"[source.own]\nmcp = {command}\n")
    daemon.reload()
    async with daemon.connect() as session:
        await session.described(60)
        assert json.loads(await text_of(session, "own_variables"))["PATH"].startswith("/directory/of/")
