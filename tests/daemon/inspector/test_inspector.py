"""The inspector: what a parser can do that hangs, dies or was taken over, and that the daemon parses nothing itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcelld.inspector import answers, process
from toolcelld.inspector.formats import FORMATS
from toolcelld.inspector.process import InspectionError

FUNCTIONS = {name: getattr(answers, name) for name in FORMATS}
SLOW = "def slow(raw):\n    while True: pass\n"
CRASHES = "def slow(raw):\n    import ctypes\n    ctypes.string_at(0)\n"
GREEDY = "def slow(raw):\n    return [bytes(2**28) for _ in range(64)]\n"
ESCAPES = """
def slow(raw):
    import os, socket, threading, time
    tried = {}
    for name, attempt in {
        "open": lambda: os.open("/etc/passwd", os.O_RDONLY),
        "write": lambda: os.open("/tmp/escaped", os.O_WRONLY | os.O_CREAT),
        "socket": lambda: socket.socket(socket.AF_UNIX),
        "fork": os.fork,
        "execute": lambda: os.execv("/bin/true", ["true"]),
        "kill": lambda: os.kill(os.getppid(), 0),
        "dup": lambda: os.dup(0),
        "memory": lambda: bytearray(2**30),
    }.items():
        try:
            attempt()
            tried[name] = "done"
        except (OSError, MemoryError, RuntimeError) as error:
            tried[name] = type(error).__name__
    return tried
"""


@pytest.fixture
def replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Inspectors with a parser of ours among the others, as one that was taken over would be."""
    idle: list[Any] = []
    templates: list[Any] = []
    monkeypatch.setattr(process, "_idle", idle)
    monkeypatch.setattr(process, "_templates", templates)
    monkeypatch.setattr(process, "_kept", process._Kept())  # pyright: ignore[reportPrivateUsage]

    def close() -> None:
        for each in (*idle, *templates):
            each.close()
        idle.clear()
        templates.clear()

    def replace(source: str) -> None:
        entry = tmp_path / "entry.py"
        entry.write_text(
            f"import sys\nsys.path[:0] = sys.argv[1:]\n{source}\n"
            "from toolcelld.inspector import __main__ as inspector, formats\n"
            "formats.FORMATS = {**formats.FORMATS, 'slow': slow}\ninspector.main()\n"
        )
        monkeypatch.setattr(process, "_kept", process._Kept())  # pyright: ignore[reportPrivateUsage]
        close()
        monkeypatch.setattr(process, "ENTRY", entry)

    yield replace
    close()


def mistake(name: str, raw: Any) -> str:
    """What is wrong with a content; empty where it has an answer."""
    try:
        FUNCTIONS[name](raw)
    except InspectionError as error:
        return str(error)
    return ""


def test_it_is_confined_and_says_so() -> None:
    assert process.confinement() == (True, "")


@pytest.mark.slow
@pytest.mark.parametrize("source", [SLOW, CRASHES])
def test_one_that_hangs_or_dies_costs_one_answer(replaced: Callable[[str], None], source: str) -> None:
    replaced(source)
    before = children()
    with pytest.raises(InspectionError, match="more than a second"):
        process.ask("slow", b"a")
    assert answers.toml(b"a = 1") == {"a": 1}
    alive = children() - before
    assert len(alive) <= 1, "the one that hung is still there"


@pytest.mark.parametrize(("size", "left"), [(1, 100), (150, 66), (9_999, 1), (10_001, 0)])
def test_the_latest_answers_are_kept_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch, size: int, left: int
) -> None:
    monkeypatch.setattr(process, "KEPT_MAX", 100)
    monkeypatch.setattr(process, "KEPT_BYTES_MAX", 10_000)
    kept = process._Kept()  # pyright: ignore[reportPrivateUsage]
    for number in range(300):
        for _ in range(2):  # of two threads that asked the same
            kept.put(("toml", b"%d" % number), (0, bytes(size)))
        kept.get(("toml", b"0"))
    present = [number for number in range(300) if kept.get(("toml", b"%d" % number)) is not None]
    used = [0] if left > 1 else []
    assert present == [*used, *range(300 - left + len(used), 300)]


BUSY = """
import time
def slow(raw):
    end = time.monotonic() + float(raw)
    while time.monotonic() < end: pass
"""


@pytest.mark.slow
def test_one_that_takes_long_loses_priority_and_is_not_kept(replaced: Callable[[str], None]) -> None:
    replaced(BUSY)
    before, ours = children(), os.getpriority(os.PRIO_PROCESS, 0)
    process.ask("slow", b"0")
    (quick,) = children() - before
    assert os.getpriority(os.PRIO_PROCESS, quick) == ours
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(process.ask, "slow", b"0.7")
        lowest = ours
        while not asking.done():
            with suppress(ProcessLookupError):
                lowest = max(lowest, os.getpriority(os.PRIO_PROCESS, quick))
    assert lowest == min(19, ours + process.BEHIND)
    asking.result()
    process.ask("slow", b"0.0")
    assert len(children() - before) == 1
    assert quick not in children(), "another one has its priority"


def children() -> set[int]:
    """The inspectors."""
    return {
        child.pid
        for template in process._templates  # pyright: ignore[reportPrivateUsage]
        for child in psutil.Process(template.pid).children()
    }


@pytest.mark.slow
def test_one_that_wants_all_memory_is_refused_it(replaced: Callable[[str], None]) -> None:
    replaced(GREEDY)
    with pytest.raises(InspectionError, match="too much memory"):
        process.ask("slow", b"a")


def test_one_that_was_taken_over_can_only_answer(replaced: Callable[[str], None]) -> None:
    replaced(ESCAPES)
    tried = json.loads(process.ask("slow", b"a"))
    assert {name for name, ended in tried.items() if ended == "done"} == set(), tried
    assert len(tried) == 8


@pytest.mark.slow
def test_an_answer_of_another_type_or_size_is_none(replaced: Callable[[str], None]) -> None:
    replaced("def slow(raw):\n    return 'x' * 2**23\n")
    with pytest.raises(InspectionError):
        process.ask("slow", b"a")
    replaced(
        "from toolcelld.inspector import formats\ndef slow(raw): pass\n"
        "formats.FORMATS = dict.fromkeys(formats.FORMATS, lambda raw: [['include', 7], None])\n"
    )
    for name, function in FUNCTIONS.items():
        with pytest.raises(InspectionError, match="cannot be read"):
            function(["a"] if name == "requirements" else b"a")


ALONE = """
import os
from toolcelld.inspector import process
process.confinement()
print(process._templates[0].pid, process._idle[0].pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_it_ends_with_the_daemon() -> None:
    """A daemon that is killed closes the socket."""
    ran = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=30, check=False
    )
    pids = [int(pid) for pid in ran.stdout.split()]
    assert len(pids) == 2
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(60)
        assert not psutil.pid_exists(pid)


LEAVES = """
from toolcelld.inspector import process
process.confinement()
print(process._idle[0].pid, flush=True)
"""


@pytest.mark.slow
def test_a_daemon_that_exits_leaves_no_inspector_to_be_reaped() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=60, check=True
    )
    assert not psutil.pid_exists(int(ran.stdout))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le"])  # fmt: skip
def test_json_is_read_in_each_of_its_encodings(encoding: str) -> None:
    assert answers.npm_manifest('{"dependencies": {"left": "1"}}'.encode(encoding)).packages == ("left",)


@settings(max_examples=60)
@given(st.sampled_from(sorted(set(FORMATS) - {"requirements"})), st.binary(max_size=300))
def test_any_bytes_are_answered_or_are_a_mistake(name: str, raw: bytes) -> None:
    told = mistake(name, raw)
    assert "more than a second" not in told
    assert "cannot be read" not in told


PIECES = (b"\n", b"[", b"{", b'"', b"'", b"\\", b"#", b"=", b".", b"a.", b"[a]\n", b"a=1\n", b'"""', b"'''", b"\xff", b"# \n", b"# /// script\n", b"[[a]]\n", b"a = [", b'{"a":', b"gitdir: x\n", b" ", b"\r")  # fmt: skip
SIZES = {"git_config": 2**18, "git_file": 2**18, "npm_manifest": 2**20, "npm_settings": 2**20, "python_environment": 2**16, "script_block": 2**20, "toml": 2**16}  # fmt: skip


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SIZES))
def test_no_content_of_the_largest_size_takes_a_second(name: str) -> None:
    begun = b"# /// script\n" if name == "script_block" else b""
    for piece in PIECES:
        assert "second" not in mistake(name, begun + piece * (SIZES[name] // len(piece))), piece
