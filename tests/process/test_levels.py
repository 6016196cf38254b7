"""Projects within a project of one worktree: each is trusted for itself, and asks for itself."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio

READS = """
    import os
    from toolcell import tool

    @tool(secrets=["TOKEN"])
    def {name}() -> str:
        return os.environ.get("TOKEN", "nothing")
    """


def write(project: Path, name: str) -> None:
    file = project / ".toolcell" / "tools" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(READS.format(name=name)))


def trust(daemon: RunningDaemon, project: Path) -> None:
    """Trust a project as a person does who says yes."""
    shown = daemon.ask("Operator/GetTrust", op.GetTrustRequest(directory=str(project)), op.GetTrustResponse)
    request = op.TrustRequest(directory=str(project), digest=shown.digest)
    daemon.ask("Operator/Trust", request, op.TrustResponse)


async def called(daemon: RunningDaemon, directory: Path) -> dict[str, str]:
    async with daemon.connect(directory=directory) as session:
        await session.reload()
        outcomes = {name: await session.call(name) for name in session.catalog.tools}
    return {name: outcome.text if outcome.ok else str(outcome.cause) for name, outcome in outcomes.items()}


@pytest.mark.parametrize("first", ["outer", "inner"])
async def test_trust_in_one_project_is_no_trust_in_one_around_or_within_it(
    daemon: RunningDaemon, first: str
) -> None:
    file = daemon.directory / "token"
    file.write_text("hunter2-0123456789\n")
    daemon.config.write_text(f'trust = "ask"\n[secrets]\nTOKEN = {{ file = "{file}" }}\n')
    daemon.reload()
    outer, inner = daemon.project, daemon.project / "packages" / "app"
    (outer / ".git").mkdir()
    write(outer, "outer")
    write(inner, "inner")
    assert await called(daemon, inner) == {}
    trust(daemon, {"outer": outer, "inner": inner}[first])
    found = await called(daemon, inner)
    assert set(found) == {first}
    trust(daemon, {"outer": inner, "inner": outer}[first])
    assert set(await called(daemon, inner)) == {"outer", "inner"}
    assert set(await called(daemon, outer)) == {"outer"}


async def test_the_nearest_tool_of_a_name_wins_and_the_other_is_a_problem(daemon: RunningDaemon) -> None:
    outer, inner = daemon.project, daemon.project / "app"
    (outer / ".git").mkdir()
    for project, text in ((outer, "outer"), (inner, "inner")):
        file = project / ".toolcell" / "tools" / "where.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"from toolcell import tool\n\n@tool\ndef where() -> str:\n    return '{text}'\n")
    async with daemon.connect(directory=inner) as session:
        assert (await session.call("where")).text == "inner"
        (problem,) = session.catalog.problems
        assert (problem.path, problem.reason) == (str(outer / ".toolcell/tools/where.py"), "rejected")
    async with daemon.connect(directory=outer) as session:
        assert (await session.call("where")).text == "outer"
