"""MCP servers whose tools change, and that end, while no call is running, through a real daemon."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from tests import servers
from tests.daemons import RunningDaemon
from tests.process.test_mcp_servers import follow, processes, text_of, until, workers
from tests.process.test_several_calls import logged

pytestmark = pytest.mark.anyio

CHANGING: Final = Path(servers.__file__).with_name("changing.py")


def offer(daemon: RunningDaemon, *tools: str, **more: Any) -> None:
    """Have the server offer tools from one moment to the next, each with these further keys."""
    listed = [{"name": name, "inputSchema": {"type": "object"}, **more} for name in tools]
    put(daemon.directory / "list", json.dumps(listed))


def put(path: Path, text: str) -> None:
    made = path.with_name("made")
    made.write_text(text)
    made.rename(path)


def changing(daemon: RunningDaemon, *words: str) -> None:
    """Configure the server that changes, which offers `a` at first."""
    shutil.copy(CHANGING, daemon.project / "changing.py")
    offer(daemon, "a")
    command = json.dumps(
        [sys.executable, "-I", "${project}/changing.py", str(daemon.directory / "list"), *words]
    )
    profile = f'[profile.beside]\nbase = "strict"\nwritable = ["{daemon.directory}"]\n[defaults]\nsandbox = "beside"\n'
    daemon.config.write_text(f"{profile}[source.changing]\nmcp = {command}\n")
    daemon.reload()


async def test_a_list_that_changes_without_a_call_reaches_sessions_and_is_kept(daemon: RunningDaemon) -> None:
    changing(daemon)
    async with daemon.connect(on_catalog=follow) as session, daemon.connect(on_catalog=follow) as other:
        process = (await text_of(session, "changing_a")).split()[1]
        offer(daemon, "a", "b", description="Both.")
        await until(lambda: {"changing_a", "changing_b"} <= session.catalog.tools.keys())
        await until(lambda: "changing_b" in other.catalog.tools)
        assert session.catalog.tools["changing_b"].description == "Both."
        assert await text_of(other, "changing_b") == f"b {process}"
        offer(daemon, "b")
        await until(lambda: "changing_a" not in session.catalog.tools)
        assert (await session.call("changing_a")).kind == "refused"
    async with daemon.connect() as session:
        assert session.catalog.tools.keys() == {"changing_b"}


async def test_a_server_that_starts_with_other_tools_is_known_by_them(daemon: RunningDaemon) -> None:
    changing(daemon)
    async with daemon.connect(on_catalog=follow) as session:
        assert session.catalog.tools.keys() == {"changing_a"}
        assert workers(daemon) == []
        offer(daemon, "a", "c")  # which nothing tells of, as it is not running
        await text_of(session, "changing_a")
        await until(lambda: "changing_c" in session.catalog.tools)


async def test_a_server_that_ends_between_calls_is_started_by_the_next_and_said_in_its_log(
    daemon: RunningDaemon,
) -> None:
    changing(daemon)
    async with daemon.connect() as session:
        await text_of(session, "changing_a")
        before = {worker.worker_id for worker in workers(daemon)}
        put(daemon.directory / "list.exit", "3")
        await until(lambda: workers(daemon) == [])
        assert processes(f"{daemon.project}/changing.py") == []
        after = await session.call("changing_a")
        assert after.ok, after
        assert after.facts.worker_id not in before
    said = await logged(daemon, "changing")
    assert any("ended with status 3; the next call starts it again" in line for line in said), said


@pytest.mark.slow
async def test_a_server_that_announces_without_end_serves_and_is_held_to_a_rate(
    daemon: RunningDaemon,
) -> None:
    changing(daemon, "storm")
    async with daemon.connect(on_catalog=follow) as session:
        await text_of(session, "changing_a")
        generations = {session.catalog.generation}

        def has_changed() -> bool:
            generations.add(session.catalog.generation)
            return len(generations) > 4

        await until(has_changed)
        await text_of(session, "changing_a")
        assert len(session.catalog.tools) == 2
