"""Sessions of a Ray cluster of three nodes: `make test-cluster`, which has a network namespace for it.

The cluster has Ray's Python, and the clients are of the environment of the tests, which has no Ray and may be another Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.ray.placed import MARKS, PROGRAMS, Placed, called, opened, refused
from tests.ray.raylets import PORT, SECONDS_MAX, Raylets, raylets, until

from toolcell.client import Call, Kind, Session, connect

pytestmark = MARKS

STOPPED_SECONDS = 30
FILE = """
    address = "127.0.0.1:7443"
    lease = 3.0

    [ray]
    volumes = { a = "BASE/a", b = "BASE/b" }
    port = 7444
    state = "BASE/nodes"

    [tenants.alice]
    directories = ["a:", "b:"]
    resources = { gpu = 2 }
    operator = true

    [tenants.bob]
    directories = ["b:docs"]
    sessions = 1
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placed]:
    begun = time.monotonic()
    base = tmp_path_factory.mktemp("ray")
    with raylets(Raylets(PROGRAMS, base)) as ray:
        placed = Placed(ray, base)
        placed.up(FILE, "alice", "bob")
        until(lambda: list(placed.nodes().values()) == ["ready"] * 3, f"{placed.nodes()} {placed.log()}")
        print(f"up in {time.monotonic() - begun:.0f} s")
        yield placed


@pytest.fixture
def placed(shared: Placed, monkeypatch: pytest.MonkeyPatch) -> Placed:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shared.base / "client"))
    return shared


async def test_sessions_are_where_their_label_and_their_resource_are(
    placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert importlib.util.find_spec("ray") is None  # a client needs none
    for directory, address in (("a:", "cluster?zone=us"), ("b:", "cluster?gpu=1")):
        async with connect(address, directory=directory) as session:
            assert (await called(session, "where")).startswith(str(placed.base / directory[0]))
    async with opened("cluster?gpu=1", "b:"):
        assert "n2 has 0 of gpu free" in await refused("b:", "cluster?gpu=1")
    assert "may have 2 of gpu" in await refused("b:", "cluster?gpu=3")
    assert "n1 has zone = us" in await refused("a:", "cluster?zone=moon")
    assert "may not use 'c:'" in await refused("c:")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(placed.base / "client-1"))  # bob's
    assert "may not use 'a:'" in await refused("a:")
    async with connect("cluster") as session:
        assert await called(session, "where") == str(placed.base / "b" / "docs")
        assert re.search(r"bob has 1 sessions, on n\d", await refused("b:docs"))


async def test_tools_find_no_variable_no_file_and_no_port_of_ray(placed: Placed) -> None:
    (control,) = placed.ray.of("gcs_server ")
    paths = [
        str(placed.base / "n1"),
        f"/proc/{control}/environ",
        str(placed.base / "nodes"),
        f"/proc/{control}/fd",
    ]
    asked: dict[str, object] = {"port": PORT, "paths": paths}
    door = str(placed.base / "nodes" / "n1" / "d.sock")
    trusted = await asyncio.to_thread(
        placed.command, "trust", str(placed.base / "a"), "--yes", "--socket", door
    )
    assert trusted.returncode == 0, trusted
    async with connect("cluster?zone=us", directory="a:") as session:  # n1
        found = json.loads(await called(session, "looks", asked))
        assert (found["variables"], found["readable"]) == ([], [])
        assert found["port"] != "open"
        outcome = await session.call("t_reaches", asked)
        assert "the ports and files of the engine" in outcome.message


async def test_a_daemon_that_is_killed_is_started_again_and_no_call_runs_twice(placed: Placed) -> None:
    async with connect("cluster?zone=us", directory="a:") as session:
        mark = placed.base / "a" / "killed"
        call = await begun(session, mark)
        os.kill(placed.ray.daemon("n1"), signal.SIGKILL)
        with anyio.fail_after(SECONDS_MAX):
            outcome = await call
            assert outcome.kind is Kind.internal, outcome
        await eventually(session)
    assert mark.read_text().count("begin") == 1


async def test_without_rays_control_plane_open_sessions_go_on_and_nothing_is_kept(placed: Placed) -> None:
    (control,) = placed.ray.of("gcs_server ")
    async with connect("cluster", directory="a:") as session:
        await called(session, "where")
        os.kill(control, signal.SIGSTOP)
        try:
            over = time.monotonic() + STOPPED_SECONDS
            await nothing_is_kept()
            async with connect("cluster", directory="b:") as other:
                while time.monotonic() < over:
                    await called(session, "where")
                    await called(other, "where")
        finally:
            os.kill(control, signal.SIGCONT)
        await called(session, "where")
    async with opened("cluster?gpu=1", "b:") as session:
        await called(session, "where")


async def test_sessions_leave_a_node_that_drains_and_no_call_is_lost(placed: Placed) -> None:
    async with connect("cluster?zone=eu", directory="a:") as session:
        await called(session, "where")
        (node,) = await asyncio.to_thread(placed.occupied)
        drained = await drain(placed, node)
        with anyio.fail_after(SECONDS_MAX):
            while await asyncio.to_thread(placed.occupied) in ([node], []):
                await called(session, "where")
        await called(session, "where")
        assert drained.returncode == 0, drained
        assert (await drain(placed, node, "--off")).returncode == 0
    until(lambda: list(placed.nodes().values()) == ["ready"] * 3, "the node takes sessions again")


async def test_a_session_of_a_node_that_is_frozen_is_elsewhere_and_no_call_runs_twice(placed: Placed) -> None:
    """Ray gives the node up, and has one less from here on."""
    assert (await drain(placed, "n2")).returncode == 0
    async with connect("cluster?zone=eu", directory="a:") as session:
        mark = placed.base / "a" / "frozen"
        call = await begun(session, mark)
        assert await asyncio.to_thread(placed.occupied) == ["n3"]
        assert (await drain(placed, "n2", "--off")).returncode == 0
        frozen = [*placed.ray.whole("n3"), placed.ray.daemon("n3")]
        for process in frozen:
            os.kill(process, signal.SIGSTOP)
        try:
            with anyio.fail_after(SECONDS_MAX):
                outcome = await call
                assert (outcome.kind, outcome.cause) == (Kind.internal, "node_lost")
                assert outcome.metadata["node"] == "n3"
                await eventually(session)
            assert await asyncio.to_thread(placed.occupied) == ["n2"]
        finally:
            for process in frozen:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)
    assert mark.read_text().count("begin") == 1


def test_down_ends_all_daemons_and_up_starts_them_again(placed: Placed) -> None:
    assert "Daemons that have ended: " in placed.command("cluster", "down", str(placed.file)).stdout
    until(lambda: not placed.ray.of("toolcelld --socket"), "a daemon goes on")
    up = placed.command("cluster", "up", str(placed.file))
    assert up.returncode == 0, up
    until(
        lambda: {"n1", "n2"} <= {name for name, state in placed.nodes().items() if state == "ready"},
        up.stdout,
    )


async def test_open_sessions_go_on_where_rays_control_plane_is_killed(placed: Placed) -> None:
    """The last one: Ray ends its nodes after a minute."""
    (control,) = placed.ray.of("gcs_server ")
    async with connect("cluster?zone=eu", directory="a:") as session:
        await called(session, "where")
        os.kill(control, signal.SIGKILL)
        await nothing_is_kept()
        await called(session, "where")
    down = placed.command("cluster", "down", str(placed.file))
    assert (down.returncode, "the daemons of the nodes may go on" in down.stderr) == (78, True), down


def test_a_ray_cluster_that_serves_strangers_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("open")  # short, for sockets of Ray's
    ray = Raylets(PROGRAMS, base, host=101, is_open=True)
    try:
        ray.start("open", "zone=eu")
        placed = Placed(ray, base)
        placed.file.write_text(textwrap.dedent(FILE).replace("BASE", str(base)))
        placed.file.chmod(0o600)
        up = placed.command("cluster", "up", str(placed.file))
        assert up.returncode == 78, up
        assert "the Ray cluster serves any process that can reach 127.0.0.101:6379" in up.stderr
        assert "start its nodes with RAY_AUTH_MODE=token" in up.stderr
        assert not ray.of("ray::NodeDaemon")
    finally:
        ray.end()


async def drain(placed: Placed, node: str, *words: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(placed.command, "cluster", "drain", node, *words, ours=True)


async def nothing_is_kept() -> None:
    """Try until a session that takes a resource is refused as Ray does not answer."""
    with anyio.fail_after(SECONDS_MAX):
        while "control plane" not in await refused("b:", "cluster?gpu=1"):
            await asyncio.sleep(0.1)


async def begun(session: Session, mark: Path) -> Call:
    """A call that writes a line when it runs, and goes on until it is stopped."""
    call = session.call("t_ticks", {"file": str(mark)})
    with anyio.fail_after(SECONDS_MAX):
        while not (mark.exists() and "tick" in mark.read_text()):
            await asyncio.sleep(0.05)
    return call


async def eventually(session: Session) -> None:
    """Call until the session has a node again."""
    with anyio.fail_after(SECONDS_MAX):
        while (await session.call("t_where")).kind is not Kind.ok:
            await asyncio.sleep(0.1)
