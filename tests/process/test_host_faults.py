"""What goes wrong with a host while the daemon runs: calls go on, health and log say what is wrong, and records resume.

The disk is a small one of the daemon's own, in a mount namespace that ends with it, and it is really full.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.daemons import RunningDaemon, open_descriptors

from toolcell.client import Session
from toolcell.client._transport.operator import Operator
from toolcell_proto.v1 import operator_pb2 as op
from toolcelld.pool.prefork import FORKING_MAX, READY_MAX

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
MIB: Final = 2**20
CALLS: Final = 60
CUTS: Final = 50
"""Random places at which the database is cut while it is written."""
TOOLS: Final = """
from toolcell import tool

@tool
def quick(n: int) -> int:
    return n

@tool(isolation="call")
def fresh() -> str:
    return "fresh"

@tool
def long() -> str:
    return "a line of some length\\n" * 20_000
"""
COUNT: Final = "SELECT count(*) FROM calls WHERE call_id = ?"
MOUNT: Final = """
mount -t tmpfs -o size=$1,mode=700 tmpfs "$2" || exit
head -c "$3" /dev/zero >"$2/filler" 2>/dev/null
shift 3 && exec "$@"
"""
"""Begins with a disk of a size in a directory, on which so many bytes are taken."""
DISK_BYTES: Final = 8 * MIB


@contextmanager
def found_again(daemon: RunningDaemon) -> Generator[None]:
    """The daemon as a test found it, which is over when its log has no traceback."""
    daemon.tool("t", TOOLS)
    yield
    daemon.check_log()


@pytest.fixture
def small(request: pytest.FixtureRequest, make_daemon: Callable[..., RunningDaemon]) -> Iterator[Small]:
    """A daemon whose state is on a disk of its own, of which the test's parameter takes bytes before the start."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    daemon = make_daemon()
    daemon.state.mkdir(mode=0o700)
    taken = str(getattr(request, "param", 0))
    sizes = [f"{DISK_BYTES}", str(daemon.state), taken]
    daemon.through = ["unshare", "--mount", "sh", "-c", MOUNT, "sh", *sizes]
    daemon.launch()
    with found_again(daemon):
        yield Small(daemon)


class Small:
    """The disk of a daemon, seen from outside."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self.daemon = daemon
        self.state = Path("/proc", str(daemon.pid), "root", *daemon.state.parts[1:])
        self.filler = self.state / "filler"

    def fill(self) -> None:
        """Leave no byte."""
        with self.filler.open("ab", buffering=0) as file, suppress(OSError):
            for size in (MIB, 4096, 1):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            (self.state / "more").write_bytes(bytes(MIB))
        (self.state / "more").unlink()
        self.fill_rest()

    def fill_rest(self) -> None:
        """Take what the last look left."""
        with self.filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def within(self, *words: str) -> None:
        """Run a program that sees the disk as the daemon does."""
        subprocess.run(["nsenter", f"--mount=/proc/{self.daemon.pid}/ns/mnt", *words], check=True)


async def calls_go_on(session: Session, count: int = CALLS) -> None:
    for number in range(count):
        outcome = await session.call("t_quick", {"n": number})
        assert outcome.ok, outcome


async def health(daemon: RunningDaemon) -> tuple[str, list[str]]:
    """The fault that the status names, and what `doctor` says of the records."""
    async with daemon.operate() as operator:
        await committed(operator)
        status = await operator.ask(operator.operator.GetStatus, op.GetStatusRequest())
        doctor = await operator.ask(operator.operator.Doctor, op.DoctorRequest())
    return status.records_fault, [one.detail for one in doctor.findings if one.name == "records"]


async def committed(operator: Operator) -> None:
    """Wait until what was recorded is written, or lost: an answer from the records comes after what was put before."""
    await operator.ask(operator.operator.ListEvents, op.ListEventsRequest(limit=1))


async def recorded(daemon: RunningDaemon, **wanted: Any) -> list[str]:
    """The ids of calls, the newest first."""
    request = op.ListCallsRequest(limit=1000, **wanted)
    async with daemon.operate() as operator:
        return [call.call_id for call in (await operator.ask(operator.operator.ListCalls, request)).calls]


async def records_resume(daemon: RunningDaemon, session: Session) -> None:
    """A call from now on is there for the next daemon."""
    call = session.call("t_quick", {"n": 1})
    assert (await call).ok
    assert await kept(daemon, call.id)
    assert (await health(daemon))[0] == ""


async def kept(daemon: RunningDaemon, call_id: str) -> bool:
    """Whether a call is in the database, as another process reads it."""
    async with daemon.operate() as operator:
        await committed(operator)
    path = str(daemon.state / "records.sqlite")
    if daemon.through[:1] != ["unshare"]:
        with contextlib.closing(sqlite3.connect(path)) as database:
            return bool(database.execute(COUNT, [call_id]).fetchone()[0])
    program = f"import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute({COUNT!r}, sys.argv[2:]).fetchone())"
    within = ["nsenter", f"--mount=/proc/{daemon.pid}/ns/mnt", sys.executable, "-c", program, path, call_id]
    done = await asyncio.to_thread(subprocess.run, within, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done
    return str(done.stdout) == "1\n"


async def test_a_disk_that_is_full_loses_records_and_no_call(small: Small) -> None:
    daemon = small.daemon
    async with daemon.connect() as session:
        await calls_go_on(session, 1)
        small.fill()
        await calls_go_on(session)
        long = await session.call("t_long")
        assert long.ok
        cut = long.output
        assert cut is not None
        assert (cut.complete, cut.reason) == (False, os.strerror(errno.ENOSPC))
        fault, told = await health(daemon)
        assert "full" in fault
        assert [text for text in told if "Calls go on" in text]
        async with daemon.operate() as operator:
            status = await operator.ask(operator.operator.GetStatus, op.GetStatusRequest())
        assert status.records_lost > 0
        small.filler.unlink()
        await records_resume(daemon, session)
        assert [text for text in (await health(daemon))[1] if "were lost since" in text]
    log = daemon.log.read_text()
    assert log.count("records are lost") == 1
    assert log.count("is written again") == 1


@pytest.mark.parametrize("small", [2 * DISK_BYTES], indirect=True)
async def test_a_daemon_that_starts_on_a_full_disk_serves_and_says_so(small: Small) -> None:
    daemon = small.daemon
    async with daemon.connect() as session:
        await calls_go_on(session)
        fault, told = await health(daemon)
        assert "full" in fault
        assert [text for text in told if "Calls go on" in text]
        async with daemon.operate() as operator:
            status = await operator.ask(operator.operator.GetStatus, op.GetStatusRequest())
        assert [text for text in status.notices if "New decisions of trust end with the daemon" in text]
        small.filler.unlink()
        await records_resume(daemon, session)
    assert daemon.log.read_text().count("is written again") == 1


async def test_a_state_that_becomes_read_only_loses_records_and_no_call(small: Small) -> None:
    daemon, state = small.daemon, str(small.daemon.state)
    async with daemon.connect() as session:
        await calls_go_on(session, 1)
        # The kernel makes no file system read-only that is written to, so the same files are there on another one.
        small.within("sh", "-c", 'mkdir "$0.copy" && cp -a "$0/." "$0.copy"', state)
        small.within("mount", "--bind", f"{state}.copy", state)
        small.within("mount", "-o", "remount,bind,ro", state)
        await calls_go_on(session)
        assert (await session.call("t_long")).ok
        fault, told = await health(daemon)
        assert os.strerror(errno.EROFS) in fault
        assert [text for text in told if "Calls go on" in text]
        small.within("umount", state)
        await records_resume(daemon, session)
    log = daemon.log.read_text()
    assert log.count("records are lost") == 1
    assert log.count("is written again") == 1


async def test_descriptors_that_are_used_up_end_calls_that_want_some_and_no_other(
    make_daemon: Callable[..., RunningDaemon],
) -> None:
    daemon = make_daemon()
    daemon.launch()
    with found_again(daemon):
        async with daemon.connect() as session:
            await calls_go_on(session, 1)
            before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (16, before[1]))
            # Cells that were ready, or being forked, take calls before.
            for _ in range(READY_MAX + FORKING_MAX + 1):
                starved = await session.call("t_fresh")
                if not starved.ok:
                    break
            await calls_go_on(session)
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
            assert starved.kind == "internal"
            assert "descriptors" in starved.message
            assert (await session.call("t_fresh")).ok
            await records_resume(daemon, session)
            found, most = op.Finding(state="in use"), 0
            async with daemon.operate() as operator, asyncio.timeout(60):
                while found.state == "in use":  # cells that are made now take some more
                    most = open_descriptors(daemon.pid) + 3
                    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (most, before[1]))
                    doctor = await operator.ask(operator.operator.Doctor, op.DoctorRequest())
                    (found,) = [one for one in doctor.findings if one.name == "descriptors"]
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
            assert (found.state, f" of {most}" in found.detail) == ("missing", True)
            assert "LimitNOFILE" in found.remedy
        assert "No cell can be made: a cell needs descriptors" in daemon.log.read_text()


MOVED: Final = """
import os, runpy, sys, time
real, place = time.time, sys.argv[1]
def moved():
    try:
        return real() + float(os.stat(place).st_size - 100_000)
    except OSError:
        return real()
time.time = moved
del sys.argv[:4]  # this program's, the interpreter's, and -m
sys.argv[0] = "toolcelld"
runpy.run_module("toolcelld", run_name="__main__", alter_sys=True)
"""
"""A daemon whose clock is moved by the size of a file, less 100,000 seconds."""
DAY: Final = 86_400


async def test_a_clock_that_moves_by_a_day_stops_no_call_and_hides_none(
    make_daemon: Callable[..., RunningDaemon],
) -> None:
    daemon = make_daemon()
    program, place = daemon.directory / "moved.py", daemon.directory / "clock"
    program.write_text(MOVED)

    def move(seconds: int) -> None:
        with place.open("ab") as file:
            file.truncate(seconds + 100_000)

    move(0)
    daemon.through = [sys.executable, str(program), str(place)]
    daemon.launch()
    with found_again(daemon):
        async with daemon.connect() as session:
            ids: list[str] = []
            for seconds in (0, DAY, 0, -DAY, 0):
                move(seconds)
                call = session.call("t_quick", {"n": 1})
                assert (await call).ok
                ids.append(call.id)
                hour_ago = Timestamp(seconds=int(time.time()) + seconds - 3600)
                assert call.id in await recorded(daemon, since=hour_ago)
                assert await kept(daemon, call.id)
            assert set(ids) <= set(await recorded(daemon))
            fault, told = await health(daemon)
            assert fault == ""
            assert not [text for text in told if "lost" in text]


@pytest.mark.timeout(600)
async def test_a_database_that_is_cut_while_it_is_written_is_begun_anew(
    make_daemon: Callable[..., RunningDaemon],
) -> None:
    daemon = make_daemon()
    daemon.launch()
    path = daemon.state / "records.sqlite"
    chosen = random.Random(24)
    with found_again(daemon):
        async with daemon.connect() as session:
            for _ in range(CUTS):
                await calls_go_on(session, 5)
                await recorded(daemon)
                os.truncate(path, chosen.randrange(max(1, path.stat().st_size)))
                await calls_go_on(session, 5)
                call = session.call("t_quick", {"n": 1})
                assert (await call).ok
                assert await kept(daemon, call.id)
            fault, told = await health(daemon)
            assert fault == ""
            assert [text for text in told if "set aside" in text]
        assert "is damaged" in daemon.log.read_text()
