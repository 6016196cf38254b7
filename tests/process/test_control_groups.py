"""What the kernel holds by control groups with their controllers; elsewhere these are skipped, and `make test-systemd` runs them on a host that has them.

The tests of limits and of hostile tools run in the same groups there. Here is what only groups can
do, and that they did it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemons import ROOMY, RunningDaemon
from tests.process import delegation
from tests.process.test_limits import HEAD, assert_passed, exceed

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

MIB = 2**20
WAIT_SECONDS_MAX = 30
LIMITS = {"memory.max": str(96 * MIB), "memory.oom.group": "1", "memory.swap.max": "0", "pids.max": "34"}
CONTROLLERS = {"cpu", "memory", "pids"}
PROCESSES_OVER_MAX = 16
"""How far over its limit a cell may get before the kernel refuses, so that the meter has something to see."""


@pytest.fixture(autouse=True)
def the_world_is_as_before() -> None:
    """Not as elsewhere, since one daemon serves all of these and its cells come and go; `held` looks."""


@pytest.fixture(scope="module")
def grouped() -> Iterator[RunningDaemon]:
    """A daemon whose cells the kernel holds; what is left of its group when it ends fails the last test."""
    base = delegation.base()
    if base is None:
        pytest.skip("no control group was handed to the tests; `make test-systemd` does")
    if missing := CONTROLLERS - set((base / "cgroup.subtree_control").read_text().split()):
        pytest.skip(f"the control group handed to the tests lacks {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        daemon = RunningDaemon(Path(directory))
        try:
            daemon.start()
            yield daemon
        finally:
            assert daemon.process is None or daemon.stop() == 0


@pytest.fixture
def held(grouped: RunningDaemon) -> Iterator[RunningDaemon]:
    """The same with a fresh configuration; at rest and with nothing grown in the end."""
    grouped.config.write_text(ROOMY.format(directory=grouped.directory))
    yield grouped
    grouped.check()


def group_of(daemon: RunningDaemon) -> Path:
    assert daemon.group is not None
    return daemon.group


def own_group(daemon: RunningDaemon, told: Path) -> Path:
    """The group of a cell, by what a tool in it wrote down of /proc/self/cgroup."""
    line = next(line for line in told.read_text().splitlines() if line.startswith("0::"))
    return group_of(daemon) / line.rpartition("/")[2]


def await_text(path: Path, end: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not path.read_text().endswith(end):
        assert time.monotonic() < deadline, f"{path} was not written to its end"
        time.sleep(0.01)


TELL = """
with open("/proc/self/cgroup") as mine, open({path!r}, "w") as told:
    told.write(mine.read())
"""


@pytest.fixture
def told(held: RunningDaemon) -> Path:
    path = held.project / "told"
    path.write_text("")
    return path


def test_the_daemon_lives_in_a_leaf_and_passes_all_controllers_on(held: RunningDaemon) -> None:
    group = group_of(held)
    assert (group / "cgroup.procs").read_text() == ""
    assert str(held.pid) in (group / "supervisor" / "cgroup.procs").read_text().split()
    assert set((group / "cgroup.subtree_control").read_text().split()) >= CONTROLLERS
    assert held.status().kill_method == "cgroup"
    assert delegation.cells(group), "not even a waiting cell has a group"
    for cell in delegation.cells(group):
        assert set((cell / "cgroup.controllers").read_text().split()) >= CONTROLLERS


def test_the_daemon_comes_before_its_cells(held: RunningDaemon) -> None:
    weight = int((group_of(held) / "supervisor" / "cpu.weight").read_text())
    for cell in delegation.cells(group_of(held)):
        assert weight > int((cell / "cpu.weight").read_text())


async def test_a_call_s_limits_are_its_group_s(held: RunningDaemon, told: Path) -> None:
    body = TELL.format(path=str(told)) + "time.sleep(SECONDS_MAX)"
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        call = asyncio.create_task(exceed(held, body, memory="96MiB", processes=16, timeout=WAIT_SECONDS_MAX))
        await asyncio.to_thread(await_text, told, "\n")
        group = own_group(held, told)
        written = {name: (group / name).read_text().strip() for name in LIMITS}
        group.joinpath("cgroup.kill").write_text("1")  # the tool need not sleep on
        outcome = await call
    assert written == LIMITS
    assert outcome.kind == "crashed"
    assert not group.exists()


async def test_memory_beyond_the_limit_ends_the_whole_cell(held: RunningDaemon, told: Path) -> None:
    body = (
        TELL.format(path=str(told))
        + """
for _ in range(4):
    below(fill, 30)
time.sleep(SECONDS_MAX)
"""
    )
    outcome = await exceed(held, body, memory="96MiB")
    assert_passed(outcome, "memory", r"9[0-6] MiB of 96 MiB after .* the kernel ended", '"192MiB"')
    assert 90 * MIB < outcome.facts.memory_peak_bytes <= 96 * MIB
    assert outcome.facts.cpu_seconds > 0
    assert not own_group(held, told).exists()


async def test_memory_in_files_that_nobody_maps_counts(held: RunningDaemon) -> None:
    body = """
place = tempfile.mkdtemp()
for number in range(200):
    with open(os.path.join(place, str(number)), "wb") as file:
        file.write(bytes(MIB))
time.sleep(SECONDS_MAX)
"""
    outcome = await exceed(held, body, memory="96MiB", disk="1GiB", sandbox="strict")
    assert_passed(outcome, "memory", r"9[0-6] MiB of 96 MiB after .* the kernel ended", '"192MiB"')


async def test_memory_beyond_the_limit_while_a_file_is_loaded_ends_its_cell(held: RunningDaemon) -> None:
    held.config.write_text('[defaults]\nmemory = "64MiB"\n')
    held.tool("bomb", HEAD + "    return 'loaded'\n\nfill(500)\n")
    held.reload()
    async with held.connect() as session:
        outcome = await session.call("bomb")
    assert (outcome.kind, outcome.cause) == ("refused", "broken_tool"), outcome
    assert re.search(r"\d+ MiB of 64 MiB after .*, while it was loaded", outcome.message), outcome.message


async def test_forks_that_nobody_looks_at_are_refused(held: RunningDaemon) -> None:
    count, go = held.project / "count", held.project / "go"
    count.write_text("")
    body = f"""
made = os.open({str(count)!r}, os.O_WRONLY)
os.write(made, b"+")
while not os.path.exists({str(go)!r}):
    time.sleep(0.01)
try:
    for _ in range(100):
        below(time.sleep, 10 * SECONDS_MAX)
        os.write(made, b".")
except BlockingIOError:
    pass
os.write(made, b"!")
time.sleep(10 * SECONDS_MAX)
"""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        call = asyncio.create_task(exceed(held, body, processes=16, timeout=WAIT_SECONDS_MAX))
        await asyncio.to_thread(await_text, count, "+")
        os.kill(held.pid, signal.SIGSTOP)  # so that no meter ends it
        try:
            go.touch()
            await asyncio.to_thread(await_text, count, "!")
        finally:
            os.kill(held.pid, signal.SIGCONT)
        outcome = await call
    assert_passed(outcome, "processes", r"\d+ of 16 processes and threads after .*; most of them ", "32")
    assert 8 < count.read_text().count(".") <= 16 + PROCESSES_OVER_MAX


async def test_a_chain_that_forks_without_pause_is_ended_by_one_word(held: RunningDaemon, told: Path) -> None:
    held.config.write_text(held.config.read_text() + "\n[daemon]\nabort_grace = 0.1\n")
    body = (
        TELL.format(path=str(told))
        + """
if os.fork() == 0:
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        os.setsid()
    os._exit(0)
while True:
    try:
        time.sleep(SECONDS_MAX)
    except BaseException:
        pass
"""
    )
    outcome = await exceed(held, body, timeout=1)
    assert (outcome.kind, outcome.stopped) == ("timed_out", "killed"), outcome
    assert not own_group(held, told).exists()


async def test_the_facts_of_a_killed_call_are_the_group_s(held: RunningDaemon) -> None:
    body = """
def spend():
    held = os.urandom(80 * MIB)
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass
    os._exit(len(held) % 2)
os.waitpid(below(spend), 0)
os.kill(os.getpid(), 9)
"""
    outcome = await exceed(held, body, memory="256MiB")
    assert outcome.kind == "crashed", outcome
    assert 80 * MIB < outcome.facts.memory_peak_bytes <= 256 * MIB
    assert outcome.facts.cpu_seconds > 0.5
