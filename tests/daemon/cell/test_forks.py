"""What is read of processes that a template has forked."""

from __future__ import annotations

import os
import signal
from typing import Final

import pytest

from toolcelld.cell.processes import forks

NOT_STOPPED: Final = b"Name:\tx\nState:\tR (running)\nShdPnd:\t0000000000000000\n"
PENDING: Final = b"Name:\tx\nState:\tR (running)\nShdPnd:\t0000000000040000\n"
STOPPED: Final = b"Name:\tx\nState:\tT (stopped)\nShdPnd:\t0000000000000000\n"


@pytest.mark.parametrize(
    ("read", "stopped"),
    [
        ([STOPPED], True),
        ([PENDING], True),
        ([NOT_STOPPED, STOPPED], True),  # it has stopped between the two lines of the first
        ([NOT_STOPPED, NOT_STOPPED], False),
    ],
)
def test_a_process_that_stops_while_it_is_read_is_stopped(
    monkeypatch: pytest.MonkeyPatch, read: list[bytes], stopped: bool
) -> None:
    texts = iter(read)

    def opened(*_: object, **__: object) -> object:
        source, sink = os.pipe()
        os.write(sink, next(texts))
        os.close(sink)
        return open(source, "rb", buffering=0)

    monkeypatch.setattr(forks, "open", opened, raising=False)
    assert forks._is_stopped(1) is stopped  # pyright: ignore[reportPrivateUsage]


def test_a_process_that_runs_is_not_stopped_until_it_is() -> None:
    pid = os.fork()
    if not pid:
        while True:
            signal.pause()
    try:
        assert not forks._is_stopped(pid)  # pyright: ignore[reportPrivateUsage]
        os.kill(pid, signal.SIGSTOP)
        assert forks._is_stopped(pid)  # pyright: ignore[reportPrivateUsage]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
