"""A kill for want of memory is known by the kernel's own record, and by nothing that a program can write."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator

import pytest

from toolcelld.cell import kernel_log
from toolcelld.cell.kernel_log import KILLS_MAX, RECORDS_AT_ONCE, KernelKill, KernelLog

pytestmark = pytest.mark.anyio

PID = 4711
REST = "total-vm:98304kB, anon-rss:66560kB, file-rss:4096kB, shmem-rss:0kB, UID:1000 pgtables:180kB oom_score_adj:1000"
KILLED = "Memory cgroup out of memory: Killed process {pid} ({name}) " + REST


def record(text: str, head: str = "3,812,99012345,-") -> bytes:
    return f"{head};{text}\n SUBSYSTEM=x\n DEVICE=+x:y\n".encode()


class Written:
    """A log, and what the kernel writes there: one record for each read, as of /dev/kmsg."""

    def __init__(self) -> None:
        self._kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.log = KernelLog(ours.detach())

    def write(self, *records: bytes) -> None:
        for one in records:
            self._kernel.send(one)

    def close(self) -> None:
        self.log.close()
        self._kernel.close()


@pytest.fixture
async def written() -> AsyncIterator[Written]:
    written = Written()
    yield written
    written.close()


@pytest.mark.parametrize(
    ("text", "told", "host"),
    [
        (KILLED, "Memory cgroup out of memory: Killed process 4711, which had 65 MiB", False),
        (
            "Out of memory: Killed process {pid} ({name}) " + REST,
            "Out of memory: Killed process 4711, which had 65 MiB",
            True,
        ),
        (
            "Out of memory (oom_kill_allocating_task): Killed process {pid} ({name}) " + REST,
            "Out of memory (oom_kill_allocating_task): Killed process 4711, which had 65 MiB",
            True,
        ),
    ],
)
async def test_a_kill_is_told_with_what_it_held(written: Written, text: str, told: str, host: bool) -> None:
    written.write(record("something else"), record(text.format(pid=PID, name="python3")))
    assert written.log.kill_of((1, PID), 0.0) == KernelKill(told, host)
    assert written.log.kill_of((PID + 1,), 0.0) is None


@pytest.mark.parametrize(
    "head", ["11,8,9,-", "12,8,9,-", "3", "", "03,8,9,-", "-3,8,9,-", "3;3,8,9,-", "9,1,1,-"]
)
async def test_what_a_program_wrote_there_is_nothing(written: Written, head: str) -> None:
    written.write(record(KILLED.format(pid=PID, name="x"), head))
    assert written.log.kill_of((PID,), 0.0) is None


@pytest.mark.parametrize(
    "text",
    [
        f"audit: {KILLED.format(pid=PID, name='x')}",
        f" {KILLED.format(pid=PID, name='x')}",
        f"\\x0a{KILLED.format(pid=PID, name='x')}",
        KILLED.format(pid=f"0x{PID:x}", name="x"),
        KILLED.format(pid=f"{PID} ", name="x"),
        KILLED.format(pid="9" * 5000, name="x"),
        f"Memory cgroup out of memory: Killed process {PID} (x",
        KILLED.format(pid=12, name=f") Killed process {PID} (x"),
        KILLED.format(pid=12, name=f"\\x0a3,1,1,-;Out of memory: Killed process {PID} (x) {REST}"),
        f"something\n {KILLED.format(pid=PID, name='x')}",
    ],
)
async def test_no_name_and_no_other_record_forges_a_kill(written: Written, text: str) -> None:
    written.write(record(text))
    assert written.log.kill_of((PID,), 0.0) is None


async def test_a_name_cannot_say_how_much_it_had(written: Written) -> None:
    written.write(record(KILLED.format(pid=PID, name="a) total-vm:1kB, anon-rss:1kB, ")))
    assert written.log.kill_of((PID,), 0.0) == KernelKill(
        "Memory cgroup out of memory: Killed process 4711, which had 65 MiB", host=False
    )


async def test_a_kill_before_the_cell_was_there_is_of_another_process(written: Written) -> None:
    written.write(record(KILLED.format(pid=PID, name="x")))
    assert written.log.kill_of((PID,), 0.0) is not None
    assert written.log.kill_of((PID,), time.monotonic()) is None


async def test_a_flood_is_read_in_parts_and_its_kills_are_bounded(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    def read(descriptor: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads % 3 == 0:
            raise BrokenPipeError  # what it was about to read is overwritten
        return record(KILLED.format(pid=reads, name="x"))

    with monkeypatch.context() as patched:
        patched.setattr(os, "read", read)
        for _ in range(4):
            before = reads
            written.log.kill_of((), 0.0)
            assert reads == before + RECORDS_AT_ONCE
    assert len(written.log._kills) == KILLS_MAX  # pyright: ignore[reportPrivateUsage]
    written.write(b";", b"\xff\xfe;\xff", b"3,1,1,-")
    assert written.log.kill_of((1,), 0.0) is None, "the oldest went first"


async def test_it_is_followed_where_this_process_may_read_it() -> None:
    found = KernelLog.opened()
    if found is None:
        assert os.geteuid() != 0 or not os.path.exists(kernel_log.PATH)
        return
    assert found.kill_of((os.getpid(),), 0.0) is None
    found.close()
