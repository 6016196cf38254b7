"""The processes of a worker in `toolcell top`: those of its own tree, by their names, and no more than fit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from toolcell.cli.operation.top import tree
from toolcell.cli.operation.top.tree import NAME_CELLS, tree_of

NAMED = """
import ctypes, os
ctypes.CDLL(None).prctl(15, b"x\\n\\x1b[31m\\xe2\\x80\\xaey", 0, 0, 0)
for depth in range(14):
    if os.fork():
        break
os.write(1, b"ready\\n")
os.read(0, 1)
"""
NO_PROCESS = 1 << 22
"""No process has this number: the kernel's largest is one less."""


@pytest.fixture
def worker() -> Iterator[int]:
    """A process with a hostile name, and fourteen below it, one below the other; all end with their input."""
    with subprocess.Popen(
        [sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(15):
            assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.stdin.close()
        while process.stdout.read():  # all of them have it
            pass


def test_a_tree_is_shown_of_what_descends_from_the_daemon(worker: int) -> None:
    heading, *rows = tree_of(worker, os.getpid()).splitlines()
    assert heading == "processes"
    assert len(rows) == 15
    assert rows[0].split()[0] == str(worker)
    assert all(row.isprintable() and "\u202e" not in row for row in rows)
    assert len({len(row) for row in rows}) == 1, "columns stand below each other"
    indents = [len(row[12 : 12 + NAME_CELLS]) - len(row[12 : 12 + NAME_CELLS].lstrip()) for row in rows]
    assert indents == [*range(0, 20, 2), *[20] * 5]


def test_a_process_that_is_none_of_the_daemon_is_not_shown(worker: int) -> None:
    assert tree_of(worker, NO_PROCESS) == ""
    assert tree_of(NO_PROCESS, os.getpid()) == ""
    assert tree_of(os.getpid(), worker) == ""


def test_a_large_tree_is_cut(worker: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "PROCESSES_MAX", 4)
    assert tree_of(worker, os.getpid()).splitlines()[5:] == ["… and 11 more"]
