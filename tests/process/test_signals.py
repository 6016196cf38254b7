"""Signals to the daemon that it has no use for."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from tests.daemons import RunningDaemon

from toolcell_proto.v1 import operator_pb2 as op

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
UNUSED = sorted(signal.valid_signals() - DECISIVE - FAULTS)


@pytest.mark.slow
async def test_a_signal_without_a_meaning_ends_no_daemon(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOL)
    assert daemon.process is not None
    for number in UNUSED:
        async with daemon.connect() as session:
            daemon.process.send_signal(number)
            assert (await session.call("add", {"a": 1, "b": 2})).text == "3", number
            assert daemon.process.poll() is None, number


@pytest.mark.parametrize("sandbox", ["none", "baseline", "strict"])
async def test_a_signal_without_a_meaning_ends_no_zygote_and_no_keeper(
    daemon: RunningDaemon, sandbox: str
) -> None:
    daemon.configure(f'[tool.add]\nsandbox = "{sandbox}"\n')
    daemon.tool("add", TOOL)
    async with daemon.connect() as session:
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
        before = await keepers(daemon)
        ours = psutil.Process(before[0]).parents()
        zygote = next(process for process in ours if process.ppid() == daemon.pid)
        for number in UNUSED:
            if number != signal.SIGCHLD:
                zygote.send_signal(number)
                for keeper in before:
                    os.kill(keeper, number)
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"
        assert await keepers(daemon) == before
        assert zygote.is_running()


async def keepers(daemon: RunningDaemon) -> list[int]:
    async with daemon.operate() as one:
        workers = (await one.ask(one.operator.ListWorkers, op.ListWorkersRequest())).workers
    return [worker.keeper_pid for worker in workers]


DEFAULTS = """
import signal
from toolcell import tool

@tool
def handlers() -> dict[int, str]:
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    return {int(number): str(signal.getsignal(number)) for number in numbers}
"""


async def test_a_tool_has_the_defaults_of_all_signals(daemon: RunningDaemon) -> None:
    daemon.tool("handlers", DEFAULTS)
    async with daemon.connect() as session:
        outcome = await session.call("handlers")
    ours = {int(number): str(signal.SIG_DFL) for number in UNUSED}
    ours |= {int(number): str(signal.SIG_IGN) for number in (signal.SIGPIPE, signal.SIGXFSZ)}
    found = {int(number): what for number, what in outcome.details.items()}
    assert {number: what for number, what in found.items() if number in ours and what != ours[number]} == {
        int(signal.SIGRTMIN + 1): found[int(signal.SIGRTMIN + 1)]
    }
