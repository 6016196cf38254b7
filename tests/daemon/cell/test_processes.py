"""What a cell's lists of processes say after a call, read while a thread of the worker ends."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from toolcelld.cell.processes import processes as module
from toolcelld.cell.processes.process_list import ONE_THREAD_LINKS, ProcessList
from toolcelld.cell.processes.processes import CellProcesses


class Ending:
    """The lists of a worker whose thread ends after the first look: its child becomes the main thread's then."""

    def __init__(self) -> None:
        self._ended = False

    def pread(self, *_: int) -> bytes:
        said, self._ended = b"99 " if self._ended else b"", True
        return said

    def fstat(self, _: int) -> Any:
        links, self._ended = ONE_THREAD_LINKS + (not self._ended), True
        return SimpleNamespace(st_nlink=links)


def test_a_child_of_a_thread_that_ends_meanwhile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    ending, processes = Ending(), CellProcesses()
    processes.worker_pid = os.getpid()
    processes._list = object.__new__(ProcessList)
    processes._list.children, processes._list.tasks = [(-1, b"")], -1
    monkeypatch.setattr(module, "os", SimpleNamespace(pread=ending.pread, fstat=ending.fstat))
    assert not processes.is_clear()
