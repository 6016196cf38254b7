"""Every sin under every profile: what the attacker wanted, how his call ended, and what is left of him."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, get_args

import pytest
from tests.hostile.conftest import HostileDaemon
from tests.hostile.table import SINS, SINS_DIRECTORY, Profile, Sin
from tests.hostile.target import World

from toolcell.client import Outcome, connect

pytestmark = pytest.mark.anyio

PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
CALL_SECONDS_MAX: Final = 30
"""Over the longest time-out and the time to live of every sin."""
NEIGHBOUR: Final = """
import os, signal, tempfile, time
from pathlib import Path
from toolcell import tool

signal.alarm(25)

@tool
def neighbour(secret: str) -> str:
    kept = Path(tempfile.mkdtemp(), "kept")
    kept.write_text(secret)
    Path("told.new").write_text(str(kept))
    os.rename("told.new", "told")
    while not os.path.exists("enough"):
        time.sleep(0.01)
    kept.unlink()
    kept.parent.rmdir()
    return "unharmed"
"""


@pytest.mark.timeout(90)
@pytest.mark.parametrize("sin", SINS, ids=lambda sin: sin.name)
@pytest.mark.parametrize("profile", PROFILES)
async def test_an_attacker_gets_no_more_than_his_profile_says(
    profile: Profile, sin: Sin, daemon_of: Callable[[Profile], HostileDaemon]
) -> None:
    if sin.needs == "root" and os.geteuid() != 0:
        pytest.skip("nobody but root could")
    if why := sin.absent():
        pytest.skip(why)
    daemon = daemon_of(profile)
    with World(daemon.directory / "worlds" / sin.name, daemon.known()) as world:
        shutil.copy(SINS_DIRECTORY / "_kernel.py", world.project / ".toolcell" / "tools")
        shutil.copy(SINS_DIRECTORY / f"{sin.name}.py", world.project / ".toolcell" / "tools")
        async with beside(world, daemon, wanted=sin.neighbour):
            outcome = await tried(sin, world, daemon)
        world.hear(outcome)
        won = sin.won(world)
        ending = f"{outcome.kind}/{outcome.cause}" if outcome.cause else str(outcome.kind)

        print(f"{profile} {sin.name}: {ending}: {outcome.text[:150]!r}")
        await daemon.serves()
        daemon.nobody_is_left()
        marks = world.marks()

        wins = (sin.succeeds and profile == "none") or profile in sin.uncovered
        assert won == wins, f"{sin.name} {'won' if won else 'did not win'}: {ending}: {outcome.text[:1000]}"
        expected = "ok" if wins else sin.ends
        assert any(ending == each or ending.startswith(f"{each}/") for each in expected.split()), (
            f"it ended {ending}: {outcome.text[:1000]}"
        )
        assert wins or profile == "none" or not marks, marks


async def tried(sin: Sin, world: World, daemon: HostileDaemon) -> Outcome:
    """How the call of the sin ended."""
    (world.project / "world.json").write_text(json.dumps(world.known()))
    async with (
        asyncio.timeout(CALL_SECONDS_MAX),
        connect(daemon.socket, daemon="running", directory=world.project) as session,
    ):
        call = session.call(sin.name, {"world": world.known()})
        looking = asyncio.create_task(seen(sin, world)) if sin.while_it_runs else None
        try:
            outcome = await call
        finally:
            if looking is not None:
                looking.cancel()
        world.catalog = repr(await session.reload())
        return outcome


async def seen(sin: Sin, world: World) -> None:
    assert sin.while_it_runs is not None
    while not world.seen:
        world.seen = sin.while_it_runs(world)
        await asyncio.sleep(0.01)


@asynccontextmanager
async def beside(world: World, daemon: HostileDaemon, *, wanted: bool) -> AsyncGenerator[None]:
    """Have a neighbour run at the same time, who keeps a secret."""
    if not wanted:
        yield
        return
    home = world.directory / "neighbour"
    tools = home / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "neighbour.py").write_text(NEIGHBOUR)
    async with connect(daemon.socket, daemon="running", directory=home) as session:
        call = session.call("neighbour", {"secret": world.secret})
        async with asyncio.timeout(10):
            while not (home / "told").exists():  # a process tells it, and has no event
                await asyncio.sleep(0.01)
        world.neighbour = {
            "neighbour": worker_in(str(home)),
            "neighbour_scratch": (home / "told").read_text(),
        }
        try:
            yield
        finally:
            (home / "enough").touch()
            world.neighbour_said = (await call).text


def worker_in(directory: str) -> int:
    """The process that works in that directory."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == directory:
                return int(name)
        except OSError:
            continue
    raise AssertionError(f"nobody works in {directory}")


def test_enough_sins_succeed_where_nothing_stops_them() -> None:
    assert len([sin for sin in SINS if sin.succeeds]) >= 40


def test_every_sin_has_a_file_and_every_file_is_a_sin() -> None:
    files = {path.stem for path in SINS_DIRECTORY.glob("[!_]*.py")}
    assert files == {sin.name for sin in SINS}
    assert len(files) == len(SINS)
