"""The usage of real process trees, and the messages about passed limits."""

from __future__ import annotations

import itertools
import os
import re
import select
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.calls.limit_monitor import crossing
from toolcelld.cell.processes.usage import (
    ENTRY_BYTES,
    EXACT_SECONDS_MAX,
    CellUsage,
    Member,
    _read,  # pyright: ignore[reportPrivateUsage]  # what this machine has neither swap nor huge pages for
    disk_used,
    measure,
    measure_exactly,
    resident_memory,
)
from toolcelld.config.resolution.settings import Limits

MIB = 2**20
BUILDER = "import sys; exec(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
"""A process in the place of a keeper, whose descendants are measured."""

FORK = """
import os, time
def below(function):
    if os.fork() == 0:
        function()
        os.write(1, b'up\\n')
        sys.stdin.read()
        os._exit(0)
"""


@contextmanager
def builder(code: str, lines: int) -> Generator[int]:
    """Start a process that runs that code; it and its children exit when its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", BUILDER, FORK + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        for _ in range(lines + 1):
            process.stdout.readline()
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_the_usage_of_a_builder_itself_does_not_count() -> None:
    with builder("held = b'x' * (50 * 2**20)", 0) as pid:
        assert measure([pid]) == CellUsage((), 0.0)


def test_all_descendants_count() -> None:
    code = "def hold():\n    global held\n    held = b'x' * (20 * 2**20)\nbelow(hold)\nbelow(hold)"
    with builder(code, 2) as pid:
        usage = measure([pid])
    assert len(usage.members) == usage.tasks == 2
    assert 40 * MIB <= usage.memory_bytes <= 100 * MIB  # with the memory of Python and coverage


def test_grandchildren_and_threads_count() -> None:
    code = """
def parent():
    import threading
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    below(lambda: None)
below(parent)
"""
    with builder(code, 2) as pid:
        assert sorted(member.tasks for member in measure([pid]).members) == [1, 4]


def test_shared_pages_count_once_in_the_exact_memory() -> None:
    code = "held = b'x' * (40 * 2**20)\nfor _ in range(4):\n    below(lambda: None)"
    with builder(code, 4) as pid:
        usage = measure([pid])
        assert usage.memory_bytes > 160 * MIB
        assert measure_exactly(usage).memory_bytes < 60 * MIB


def test_processes_that_are_not_read_in_time_count_with_all_their_pages() -> None:
    code = "held = b'x' * (40 * 2**20)\nfor _ in range(4):\n    below(lambda: None)"
    with builder(code, 4) as pid:
        usage = measure([pid])
        seconds = itertools.chain([0.0, 0.0], itertools.repeat(EXACT_SECONDS_MAX))  # one is read
        exact = measure_exactly(usage, lambda: next(seconds))
    assert [member.memory_bytes for member in exact.members[1:]] == [
        member.memory_bytes for member in usage.members[1:]
    ]
    assert exact.members[0].memory_bytes < usage.members[0].memory_bytes / 2


def test_the_exact_memory_of_what_has_exited_is_none() -> None:
    with builder("below(lambda: None)", 1) as pid:
        usage = measure([pid])
        assert usage.memory_bytes
        child = os.pidfd_open(usage.members[0].pid)
    try:  # it exits after its parent
        assert select.select([child], [], [], 60)[0]
    finally:
        os.close(child)
    assert measure_exactly(usage).memory_bytes == 0


def test_pages_in_swap_and_huge_pages_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def filled(path: str) -> bytes:
        return re.sub(rb"((VmSwap|HugetlbPages|SwapPss):\s+)0 kB", rb"\g<1>102400 kB", _read(path))

    with builder("below(lambda: None)", 1) as pid:
        before = measure([pid]).memory_bytes
        exactly = measure_exactly(measure([pid])).memory_bytes
        monkeypatch.setattr("toolcelld.cell.processes.usage._read", filled)
        assert measure([pid]).memory_bytes - before == pytest.approx(200 * MIB, abs=MIB)
        assert measure_exactly(measure([pid])).memory_bytes - exactly == pytest.approx(200 * MIB, abs=MIB)


def test_no_memory_is_read_of_more_processes_than_the_limit() -> None:
    with builder("held = b'x' * (40 * 2**20)\nfor _ in range(4):\n    below(lambda: None)", 4) as pid:
        bomb = measure([pid], tasks_limit=2)
        assert (bomb.tasks, bomb.memory_bytes) == (4, 0)
        assert measure([pid], tasks_limit=4).memory_bytes > 160 * MIB


def test_the_processor_time_of_reaped_processes_counts() -> None:
    code = """
def spin():
    while time.process_time() < 0.3:
        pass
    os._exit(0)
below(spin)
os.wait()
"""
    with builder(code, 0) as pid:
        assert 0.28 <= measure([pid]).cpu_seconds <= 0.6


@pytest.mark.parametrize(
    "name", [b"a) R 1 1", b"two\nlines", b"\xff\xfe", b"(((", b") ) )", b"\x1b[31m", b" "]
)
def test_a_process_may_have_any_name(name: bytes) -> None:
    code = f"below(lambda: open('/proc/self/comm', 'wb').write({name!r}))"
    with builder(code, 1) as pid:
        (member,) = measure([pid]).members
    assert member.tasks == 1
    assert member.name.isprintable()
    assert len(str(member).splitlines()) == 1


def test_a_process_that_has_exited_uses_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert measure([gone.pid]) == CellUsage((), 0.0)
    assert resident_memory(gone.pid) == resident_memory(0) == (0, 0)


def test_resident_memory_is_what_psutil_reads() -> None:
    with builder("held = b'x' * (50 * 2**20)", 0) as pid:
        now, most = resident_memory(pid)
        # The kernel sums per processor, and the two files differ in precision.
        assert now == pytest.approx(psutil.Process(pid).memory_info().rss, abs=MIB)
    assert 50 * MIB < now <= most


def test_a_directory_counts_with_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(os.urandom(MIB))
    assert MIB <= disk_used(str(tmp_path), 10 * MIB) <= MIB + 3 * ENTRY_BYTES


def test_a_sparse_file_counts_by_its_blocks(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    assert disk_used(str(tmp_path), MIB) <= MIB


def test_empty_files_count(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert disk_used(str(tmp_path), MIB) == 100 * ENTRY_BYTES


def test_counting_stops_above_the_given_size(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert disk_used(str(tmp_path), 9 * ENTRY_BYTES) == 10 * ENTRY_BYTES


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "up").symlink_to("/")
    (tmp_path / "self").symlink_to(tmp_path)
    assert disk_used(str(tmp_path), MIB) == 2 * ENTRY_BYTES


def test_a_missing_directory_takes_no_space(tmp_path: Path) -> None:
    assert disk_used(str(tmp_path / "gone"), MIB) == 0


USAGE = CellUsage(
    (
        Member(41376, "python3", tasks=3, cpu_seconds=0.5, memory_bytes=100 * MIB),
        Member(41377, "blender", tasks=12, cpu_seconds=6.0, memory_bytes=412 * MIB),
    ),
    cpu_seconds=6.5,
)


@pytest.mark.parametrize(
    ("limits", "key", "text"),
    [
        (
            Limits(memory_bytes=500 * MIB),
            "memory",
            "512 MiB of 500 MiB after 4.1 s; most of it in blender (pid 41377)",
        ),
        (
            Limits(processes=14),
            "processes",
            "15 of 14 processes and threads after 4.1 s; most of them blender",
        ),
        (
            Limits(cpu_seconds=6.0),
            "cpu",
            "6.5 s of 6 s of processor time after 4.1 s; most of it in blender (pid 41377)",
        ),
    ],
)
def test_a_passed_limit_is_named_with_the_figure_and_the_process(limits: Limits, key: str, text: str) -> None:
    stop = crossing(limits, USAGE, 6.5, 4.1)
    assert stop is not None
    assert (stop.kind, stop.cause, stop.text) == ("limit_exceeded", key, text)


@given(
    st.builds(
        Limits,
        memory_bytes=st.none() | st.integers(512 * MIB),
        processes=st.none() | st.integers(15),
        cpu_seconds=st.none() | st.floats(6.5),
    )
)
def test_a_limit_that_is_not_passed_stops_nothing(limits: Limits) -> None:
    assert crossing(limits, USAGE, 6.5, 4.1) is None
