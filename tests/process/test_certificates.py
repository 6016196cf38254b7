"""Each death of a worker has one certificate: the same line in the call's history, the events and the log."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Event, Kind
from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio

TOOLS = """
import ctypes, os, signal, sys, threading, time
from toolcell import tool

@tool
def segfault() -> None:
    print("my last \\x1b[31m words", file=sys.stderr, flush=True)
    ctypes.string_at(0)

@tool
def leaves() -> None:
    os._exit(7)

@tool
def waits() -> None:
    print("ready", flush=True)
    while True:
        time.sleep(0.01)

@tool(memory="64MiB")
def fills() -> None:
    held = []
    while True:
        held.append(bytearray(1 << 20))
        time.sleep(0.001)

@tool(memory="1GiB")
def fills_later(mark: str) -> None:
    print("ready", flush=True)
    while not os.path.exists(mark):
        time.sleep(0.01)
    ctypes.CDLL(None).prctl(15, b"x)\\n3,1,1,-;Out", 0, 0, 0)  # the name of the process
    held = bytearray(512 << 20)
    held[::4096] = b"x" * len(held[::4096])

@tool(processes=8)
def forks() -> None:
    while True:
        try:
            if os.fork() == 0:
                time.sleep(600)
        except OSError:
            time.sleep(0.01)

@tool
def stays() -> None:
    print("ready", flush=True)
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass
"""


async def certificate_of(daemon: RunningDaemon, call_id: str) -> str:
    """The line, which is the same wherever it stands, and once in each."""
    async with daemon.operate() as operator:
        story = (await operator.ask(operator.operator.GetCall, op.GetCallRequest(call_id=call_id))).story
        request = op.ListEventsRequest(type="worker.dead")
        died = (await operator.ask(operator.operator.ListEvents, request)).events
    (noted,) = [line.text.partition(" died of ")[2] for line in story if " died of " in line.text]
    (event,) = [event for event in died if event.call_id == call_id]
    assert event.message.endswith(f": {noted}")
    logged = [line for line in daemon.log.read_text().splitlines() if call_id in line]
    assert [line.partition(" died of ")[2] for line in logged] == [noted]
    assert noted.isprintable()
    return noted


@pytest.mark.sampled(one_in=2, rest="slow")
@pytest.mark.parametrize(
    ("tool", "cause", "evidence", "setting"),
    [
        (
            "segfault",
            "SIGSEGV",
            r"it was at File .*in segfault; File .*string_at; its last line was 'my last .x1b.31m words'",
            "No setting",
        ),
        ("leaves", "exit 7", "it exited with status 7", "No setting"),
        ("fills", "memory", "MiB of 64 MiB", r"`memory`, in its \[tool"),
        ("forks", "processes", "of 8 processes and threads", r"`processes`, in its \[tool"),
    ],
)
async def test_a_death_by_the_tool_is_certified(
    daemon: RunningDaemon, tool: str, cause: str, evidence: str, setting: str
) -> None:
    daemon.tool("t", TOOLS)
    call_id = f"c-{tool}"
    async with daemon.connect() as session:
        outcome = await session.call(f"t_{tool}", {}, call_id=call_id)
        assert outcome.cause == cause, outcome
        found = await certificate_of(daemon, call_id)
    assert found.startswith(f"{cause}: ")
    assert re.search(evidence, found), found
    assert re.search(setting, found), found


async def test_a_kill_from_outside_is_told_from_those_of_the_daemon(daemon: RunningDaemon) -> None:
    daemon.tool("t", TOOLS)
    async with daemon.connect() as session, daemon.operate() as operator:
        call = session.call("t_waits", {}, call_id="c-outside")
        async for _ in call:
            listed = await operator.ask(operator.operator.ListWorkers, op.ListWorkersRequest())
            if busy := [worker for worker in listed.workers if worker.call_id == "c-outside"]:
                os.kill(busy[0].pid, signal.SIGKILL)
                break
        assert (await call).cause == "SIGKILL"
        found = await certificate_of(daemon, "c-outside")
    assert "it was killed, and not by Toolcell" in found
    assert "`journalctl -k`" in found


async def test_an_abort_that_does_not_end_is_certified_with_the_grace(daemon: RunningDaemon) -> None:
    daemon.tool("t", TOOLS)
    async with daemon.connect() as session:
        printed = asyncio.Event()

        def on_event(event: Event) -> None:
            if "ready" in repr(event):
                printed.set()

        call = session.call("t_stays", {}, call_id="c-stays", on_event=on_event)
        await printed.wait()
        call.abort()
        assert (await call).kind is Kind.aborted
        found = await certificate_of(daemon, "c-stays")
    assert found.startswith("abort: its call did not stop when it was aborted; ignored it for 2 s")
    assert "`abort_grace` in [daemon]" in found


MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
"""Of the kernel's older hierarchy, where root makes one for the test; it is none that the daemon uses."""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group of 64 MiB, outside of any cell's."""
    if not os.access(MEMORY_GROUPS, os.W_OK) or not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("control groups of the older hierarchy, and the kernel's log, are root's")
    place = MEMORY_GROUPS / f"toolcell-test-{os.getpid()}"
    place.mkdir()
    (place / "memory.limit_in_bytes").write_text(str(64 << 20))
    yield place
    place.rmdir()


@pytest.mark.slow
async def test_a_kill_for_want_of_memory_has_the_record_of_the_kernel(
    daemon: RunningDaemon, small_group: Path
) -> None:
    daemon.tool("t", TOOLS)
    mark, pid = daemon.project / "go", 0
    async with daemon.connect() as session, daemon.operate() as operator:
        call = session.call("t_fills_later", {"mark": str(mark)}, call_id="c-kernel")
        async for _ in call:
            listed = await operator.ask(operator.operator.ListWorkers, op.ListWorkersRequest())
            if busy := [worker for worker in listed.workers if worker.call_id == "c-kernel"]:
                pid = busy[0].pid
                (small_group / "cgroup.procs").write_text(str(pid))
                mark.touch()
                break
        assert (await call).cause == "SIGKILL"
        found = await certificate_of(daemon, "c-kernel")
    assert found.startswith("SIGKILL: a control group that its own is in was out of memory; ")
    record = f"the kernel's log says 'Memory cgroup out of memory: Killed process {pid}, which had "
    assert record in found
