"""Signals to the daemon that it has no use for."""

from __future__ import annotations

import signal

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

TOOL = """
from toolcell import tool

@tool
def add(a: int, b: int) -> int:
    return a + b
"""
DECISIVE = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
}
"""Signals that stop the daemon or its process."""
FAULTS = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGILL,
    signal.SIGFPE,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGQUIT,
    signal.SIGSYS,
}
"""Signals of a fault of its own, and the one that asks for a core dump."""
REAL_TIME = range(signal.SIGRTMIN, signal.SIGRTMAX + 1)


@pytest.mark.parametrize(
    "number",
    sorted(signal.valid_signals() - DECISIVE - FAULTS - {*REAL_TIME}),
    ids=lambda number: number.name,
)
async def test_a_signal_without_a_meaning_ends_no_daemon(
    daemon: RunningDaemon, number: signal.Signals
) -> None:
    daemon.tool("add", TOOL)
    assert daemon.process is not None
    async with daemon.connect() as session:
        daemon.process.send_signal(number)
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
        assert daemon.process.poll() is None
