"""A daemon in a control group that was handed to it, as a service manager hands one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon
from tests.process import delegation
from tests.process.delegation import cells

from toolcelld.cell.cgroup import Cgroup

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

DEATH_SECONDS_MAX = 40.0


@pytest.fixture
def delegated() -> Iterator[Path]:
    """A group that is marked as handed over; it must be empty in the end."""
    place = delegation.base() or delegation.hierarchy()
    if place is None or not os.access(place, os.W_OK):
        pytest.skip("no control group of version 2 that this user may write to")
    path = delegation.make(place)
    left: list[str] = []
    try:
        yield path
    finally:
        left += delegation.remove(path)
    assert not left, f"left behind: {left}"


@pytest.fixture
def serving(make_daemon: Callable[[], RunningDaemon], delegated: Path) -> Iterator[RunningDaemon]:
    """A daemon that was started in the group; ended before the group is looked at."""
    daemon = make_daemon()
    daemon.through = delegation.inside(delegated)
    daemon.start()
    yield daemon
    if daemon.process is not None:
        daemon.check()
        assert daemon.stop() == 0


DAEMONS = """
import os, signal, subprocess, time
from toolcell import tool

@tool
def breed(path: str) -> str:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(5):
        subprocess.Popen(["setsid", "-f", "sleep", "30"])
    with open("/proc/self/cgroup") as mine, open(path, "w") as told:
        told.write(mine.read())
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            time.sleep(1)
        except BaseException:
            pass
    return "never"
"""


@pytest.mark.slow
async def test_every_cell_is_in_a_group_of_its_own_and_ends_with_it(
    serving: RunningDaemon, delegated: Path
) -> None:
    serving.config.write_text("[daemon]\nabort_grace = 0.1\n")
    serving.reload()
    serving.tool("breed", DAEMONS)
    told = serving.project / "told"
    told.touch()
    assert serving.status().kill_method == "cgroup"
    assert str(serving.pid) in (delegated / "supervisor" / "cgroup.procs").read_text().split()
    async with serving.connect() as session:
        outcome = await session.call("breed", {"path": str(told)}, timeout=5)
    own = next(line for line in told.read_text().splitlines() if line.startswith("0::"))
    assert own.rpartition("/")[2].startswith(f"cell-{serving.pid}-")
    assert (outcome.kind, outcome.stopped) == ("timed_out", "killed"), outcome
    assert "was killed with its 5 processes" in outcome.message
    assert not (delegated / own.rpartition("/")[2]).exists()


@pytest.mark.slow
def test_a_daemon_that_ends_leaves_no_group(serving: RunningDaemon, delegated: Path) -> None:
    assert cells(delegated)
    assert serving.stop() == 0
    assert cells(delegated) == []


@pytest.mark.slow
def test_what_a_dead_daemon_left_is_ended_and_removed(
    make_daemon: Callable[[], RunningDaemon], delegated: Path
) -> None:
    stale = delegated / "cell-1-7"  # process 1 is no daemon of this group
    stale.mkdir()
    left = subprocess.Popen(["sleep", "60"])
    Cgroup(str(stale), frozenset()).join(left.pid)
    daemon = make_daemon()
    daemon.through = delegation.inside(delegated)
    daemon.start()
    assert left.wait(DEATH_SECONDS_MAX) == -signal.SIGKILL
    daemon.at_rest()
    assert daemon.stop() == 0
    assert not stale.exists()


@pytest.mark.slow
def test_a_killed_daemon_s_groups_are_removed_by_the_next(
    serving: RunningDaemon, delegated: Path, make_daemon: Callable[[], RunningDaemon]
) -> None:
    serving.stop(signal.SIGKILL)
    first = cells(delegated)
    assert first
    daemon = make_daemon()
    inside = (
        delegated / "supervisor"
    )  # where a service manager starts one again, as told by DelegateSubgroup=
    daemon.through = delegation.inside(inside)
    daemon.start()
    assert daemon.status().kill_method == "cgroup"
    assert daemon.stop() == 0
    assert not any(path.exists() for path in first)


@pytest.mark.slow
def test_a_group_that_others_live_in_is_left_alone(
    make_daemon: Callable[[], RunningDaemon], delegated: Path
) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        Cgroup(str(delegated), frozenset()).join(other.pid)
        daemon = make_daemon()
        daemon.through = delegation.inside(delegated)
        daemon.start()
        assert daemon.status().kill_method != "cgroup"
        assert not (delegated / "supervisor").exists()
        assert daemon.stop() == 0
    finally:
        other.kill()
        other.wait()
