"""Every attack under every profile: whether it succeeded, how its call ended, and what it left behind.

The attacks are bounded: each call has limits of memory, processes and time, each process that an attack starts has an
alarm, and the attacks on resources are one xdist group, so that no two of them run at the same time.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, get_args

import pytest
from tests.hostile.conftest import HostileDaemon
from tests.hostile.table import ATTACKS, ATTACKS_DIRECTORY, Attack, Profile
from tests.hostile.target import Target

from toolcell.client import Outcome, connect

pytestmark = pytest.mark.anyio

PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
CALL_SECONDS_MAX: Final = 60
"""More than the longest time-out and the alarm of every attack."""
LEFTOVER_SECONDS_MAX: Final = 7
"""When the daemon has no worker any more. Less than the alarms of processes that an attack leaves behind: longer, and those
would be taken for ended."""
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


UNCONFINED_ONE_IN: Final = 3
"""In the gate the confining profiles hold every attack, and a third of them show that they succeed without one."""


def made_by_root(attack: Attack, place: int) -> bool:
    """Whether root makes it in the gate; what a user makes there, too, under every second profile."""
    return attack.root == "needed" or (attack.root == "differs" and place % 2 == 0)


def attacks_of(profile: Profile) -> list[Any]:
    """The attacks under one profile, each with the marks that say where and beside what it may run."""
    return [
        pytest.param(
            profile,
            attack,
            id=f"{profile}-{attack.name}",
            marks=[
                pytest.mark.xdist_group(
                    "resources" if attack.kind == "resources" else f"{profile} {attack.kind}"
                ),
                *([pytest.mark.as_root] if made_by_root(attack, place) else []),
                *([pytest.mark.nightly] if profile == "none" and number % UNCONFINED_ONE_IN else []),
            ],
        )
        for number, attack in enumerate(ATTACKS)
        for place in [number + PROFILES.index(profile)]
    ]


@pytest.mark.timeout(90)
@pytest.mark.parametrize(("profile", "attack"), [each for one in PROFILES for each in attacks_of(one)])
async def test_an_attack_succeeds_only_where_its_profile_says_so(
    profile: Profile, attack: Attack, daemon_of: Callable[[Profile], HostileDaemon]
) -> None:
    if attack.root == "needed" and os.geteuid() != 0:
        pytest.skip("only root could succeed")
    if why := attack.missing():
        pytest.skip(why)
    daemon = daemon_of(profile)
    with Target(daemon.directory / "targets" / attack.name, daemon.known()) as target:
        for name in ("_kernel.py", "_after.py", f"{attack.name}.py"):
            shutil.copy(ATTACKS_DIRECTORY / name, target.project / ".toolcell" / "tools")
        async with neighbour(target, daemon, wanted=attack.neighbour):
            outcome = await call(attack, target, daemon)
        target.keep(outcome)
        succeeded = attack.succeeded(target)
        ending = f"{outcome.kind}/{outcome.cause}" if outcome.cause else str(outcome.kind)

        print(f"{profile} {attack.name}: {ending}: {outcome.text[:150]!r}")
        await daemon.check_serves()
        daemon.check_alive()
        await asyncio.to_thread(daemon.settle)  # however long that takes where others have the processors

        allowed = (attack.succeeds_unconfined and profile == "none") or profile in attack.not_prevented
        assert succeeded == allowed, (
            f"{attack.name} {'succeeded' if succeeded else 'did not succeed'}: {ending}: {outcome.text[:1000]}"
        )
        expected = "ok" if allowed else attack.endings
        assert any(ending == each or ending.startswith(f"{each}/") for each in expected.split()), (
            f"it ended {ending}: {outcome.text[:1000]}"
        )
        if not allowed and profile != "none":
            await nothing_is_left(target)
    daemon.attacked(attack.name)


async def call(attack: Attack, target: Target, daemon: HostileDaemon) -> Outcome:
    """Call the attack's tool; returns the outcome of the call."""
    (target.project / "target.json").write_text(json.dumps(target.known()))
    async with (
        asyncio.timeout(CALL_SECONDS_MAX),
        connect(daemon.socket, daemon="running", directory=target.project) as session,
    ):
        calling = session.call(attack.name, {"target": target.known()})
        looking = asyncio.create_task(look(attack, target)) if attack.while_it_runs else None
        try:
            outcome = await calling
        finally:
            if looking is not None:
                looking.cancel()
        target.catalog = repr(await session.reload())
        return outcome


async def nothing_is_left(target: Target) -> None:
    """Fail if the attack has left something; the workers that waited for another call have been retired."""
    deadline = time.monotonic() + LEFTOVER_SECONDS_MAX
    while left := target.leftovers():
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.02)  # the end of a worker that is being described has no event


async def look(attack: Attack, target: Target) -> None:
    assert attack.while_it_runs is not None
    while not target.seen:
        target.seen = attack.while_it_runs(target)
        await asyncio.sleep(0.01)


@asynccontextmanager
async def neighbour(target: Target, daemon: HostileDaemon, *, wanted: bool) -> AsyncGenerator[None]:
    """Run another tool at the same time, which keeps a secret."""
    if not wanted:
        yield
        return
    home = target.directory / "neighbour"
    tools = home / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "neighbour.py").write_text(NEIGHBOUR)
    async with connect(daemon.socket, daemon="running", directory=home) as session:
        calling = session.call("neighbour", {"secret": target.secret})
        async with asyncio.timeout(30):
            while not (home / "told").exists():  # another process writes it, and there is no event
                await asyncio.sleep(0.01)
        target.neighbour = {
            "neighbour": worker_in(str(home)),
            "neighbour_scratch": (home / "told").read_text(),
        }
        try:
            yield
        finally:
            (home / "enough").touch()
            target.neighbour_result = (await calling).text


def worker_in(directory: str) -> int:
    """The process whose working directory that is."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == directory:
                return int(name)
        except OSError:
            continue
    raise AssertionError(f"no process works in {directory}")


def test_at_least_forty_attacks_succeed_without_confinement() -> None:
    assert len([attack for attack in ATTACKS if attack.succeeds_unconfined]) >= 40


def test_every_attack_has_a_file_and_every_file_is_an_attack() -> None:
    files = {path.stem for path in ATTACKS_DIRECTORY.glob("[!_]*.py")}
    assert files == {attack.name for attack in ATTACKS}
    assert len(files) == len(ATTACKS)


def test_every_attack_ends_by_itself() -> None:
    """A process that outlives its call by our mistake is ended by its alarm, which forked children do not inherit."""
    for attack in ATTACKS:
        text = (ATTACKS_DIRECTORY / f"{attack.name}.py").read_text()
        assert "\nsignal.alarm(" in text, attack.name
        assert text.count("signal.alarm(") > ("os.fork()" in text), f"{attack.name}: a child without an alarm"
