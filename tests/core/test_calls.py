"""A call that is stopped on its way to a worker: it ends at once, and nothing that was granted is lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from toolcelld.calls import events
from toolcelld.calls.call import Call
from toolcelld.calls.events import MESSAGE_BYTES, parts
from toolcelld.calls.outcome import Kind, Outcome, Stop
from toolcelld.calls.request import Request
from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.sources import ToolFile
from toolcelld.config.load import Config
from toolcelld.config.settings import resolve
from toolcelld.lifecycle import CallState, WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.pool import Pool
from toolcelld.pool.slots import Slots
from toolcelld.pool.worker import Invocation, Listener, Worker
from toolcelld.sandbox.policy import OPEN, CellLimits

pytestmark = pytest.mark.anyio

FILE = ToolFile("/t.py", "project", "local", "t", b"", "digest", "/")
STOP = Stop(Kind.ABORTED, "client", "by you")


class FakeHost:
    """A session that only listens."""

    id = "s-1"
    secret_digest = b""
    directory = worktree = "/"
    answers = True
    services: frozenset[str] = frozenset()
    agent = "claude"

    def __init__(self) -> None:
        self.slots = Slots(1)
        self.always: set[tuple[str, str, str]] = set()
        self.spills = cast("Any", None)
        self.told: list[events.Event] = []
        self.ended = 0

    def tell(self, event: events.Event) -> None:
        self.told.append(event)

    def log(self, call_id: str, tool: str, source: str, level: str, text: str) -> None:
        """Nobody reads it."""

    def on_begun(self, call: Call) -> None:
        """Nobody hears of it."""

    def on_ended(self, call: Call, told: tuple[events.Event, ...]) -> None:
        self.told += told
        self.ended += 1

    def take_state_lost(self, spec: CellSpec) -> bool:
        return False


class FakePool:
    """A pool whose one worker is granted by the test."""

    def __init__(self) -> None:
        self.granted: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self.returned: list[tuple[object, WorkerEvent]] = []

    def lease_now(self, spec: CellSpec) -> Worker | None:
        return None

    async def lease(self, spec: CellSpec, queue_seconds: float | None, **who: object) -> Worker:
        return await asyncio.shield(self.granted)

    def give_back(self, worker: object, event: WorkerEvent) -> None:
        self.returned.append((worker, event))


def a_call(host: FakeHost) -> Call:
    tool = ToolInfo("t", "", b"{}", FILE, "t", {})
    return Call(
        Request(call_id="c-1", tool="t", arguments=b"{}"),
        tool,
        resolve(Config(), "t", {}, "project"),
        CellSpec(FILE, "/", (), CellLimits(), OPEN),
        host,
        generation=1,
        grace_seconds=1,
    )


async def moments(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("moment", range(8))
async def test_a_stop_at_any_moment_of_waiting_ends_the_call_and_keeps_nothing(moment: int) -> None:
    host, pool = FakeHost(), FakePool()
    async with asyncio.TaskGroup() as tasks:
        call = a_call(host)
        call.start(cast("Pool", pool), tasks)
        await moments(moment)
        assert call.stop(STOP)
    assert call.outcome is not None
    assert (call.outcome.kind, call.outcome.ran) == (Kind.ABORTED, False)
    assert host.ended == 1
    assert host.slots.take_now()


@pytest.mark.parametrize("moment", range(3))
async def test_a_worker_granted_in_the_moment_of_a_stop_goes_back(moment: int) -> None:
    host, pool = FakeHost(), FakePool()
    worker = cast("Worker", object())
    async with asyncio.TaskGroup() as tasks:
        call = a_call(host)
        call.start(cast("Pool", pool), tasks)
        await moments(5)
        pool.granted.set_result(worker)
        await moments(moment)
        assert call.stop(STOP)
    assert call.outcome is not None
    assert call.outcome.kind is Kind.ABORTED
    # Up to the last moment the lease itself is cancelled, and the pool sees to its worker.
    assert pool.returned == ([(worker, WorkerEvent.DONE)] if moment == 2 else [])
    assert host.slots.take_now()
    assert host.ended == 1


def is_consistent(call: Call) -> bool:
    """Whether the table and the call say the same of whether it has ended."""
    return (call.state is CallState.ENDED) == (call.ending is not None)


@pytest.mark.parametrize("moment", range(8))
async def test_a_waiting_call_that_is_stopped_has_its_outcome_as_soon_as_it_has_ended(moment: int) -> None:
    host, pool = FakeHost(), FakePool()
    async with asyncio.TaskGroup() as tasks:
        call = a_call(host)
        call.start(cast("Pool", pool), tasks)
        await moments(moment)
        call.stop(STOP)
        assert is_consistent(call)
        assert call.summary().state is call.state
        assert not call.stop(STOP) or not call.ended
    assert call.state is CallState.ENDED
    assert call.done.done()


class BrokenWorker:
    """A worker whose code has a bug where it takes a call."""

    id = "w-1"
    state = WorkerState.BUSY
    call_id = ""

    def __init__(self) -> None:
        self.cell = self
        self.over = False

    def begin(self, invocation: Invocation, listener: Listener) -> int:
        raise RuntimeError("a bug")

    def release(self) -> None:
        """Nothing listens."""

    def end(self) -> None:
        self.over = True


class PoolOfOne(FakePool):
    """A pool that has one warm worker."""

    def __init__(self, worker: object) -> None:
        super().__init__()
        self.worker = worker

    def lease_now(self, spec: CellSpec) -> Worker | None:
        return cast("Worker", self.worker)


async def test_a_call_that_fails_by_a_bug_has_ended_in_the_table_too() -> None:
    host, worker = FakeHost(), BrokenWorker()
    async with asyncio.TaskGroup() as tasks:
        call = a_call(host)
        call.start(cast("Pool", PoolOfOne(worker)), tasks)
    assert call.outcome is not None
    assert (call.outcome.kind, call.outcome.cause, call.outcome.ran) == (Kind.INTERNAL, "failure", True)
    assert call.state is CallState.ENDED
    assert call.summary().state is CallState.ENDED
    assert worker.over
    assert host.slots.take_now()
    assert (host.ended, call.stop(STOP)) == (1, False)


async def test_a_bug_while_a_call_waits_ends_it() -> None:
    host, pool = FakeHost(), FakePool()
    async with asyncio.TaskGroup() as tasks:
        call = a_call(host)
        call.start(cast("Pool", pool), tasks)
        await moments(5)
        pool.granted.set_exception(RuntimeError("a bug"))
    assert call.outcome is not None
    assert (call.outcome.kind, call.outcome.ran) == (Kind.INTERNAL, False)
    assert call.state is CallState.ENDED
    assert host.slots.take_now()


@pytest.mark.parametrize("body_bytes", [0, 100, 60_000, 300_000])
async def test_an_outcome_is_cut_into_messages_whatever_stands_around_its_body(body_bytes: int) -> None:
    body = bytes(body_bytes)
    around = Outcome(Kind.TOOL_ERROR, "", "é" * 4000, body, b'{"title": "%s"}' % (b"x" * 30_000))
    first, *rest = parts("c-1", around)
    assert isinstance(first, events.Ended)
    assert first.more is bool(rest)
    assert [chunk.last for chunk in rest] == [False] * (len(rest) - 1) + [True] * bool(rest)
    assert b"".join([first.body, *(chunk.data for chunk in rest)]) == body
    assert all(event.size_bytes <= MESSAGE_BYTES for event in (first, *rest))
