"""A call on its way to a worker: it ends once, in its table and by its outcome, and nothing that was granted is lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.daemon.calls.owner import FakeOwner
from tests.daemon.sessions.stage import staged

from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.calls import events
from toolcelld.calls.call import Call
from toolcelld.calls.events import MESSAGE_BYTES, parts
from toolcelld.calls.outcomes.outcome import Kind, Outcome, Stop
from toolcelld.calls.request import Plan, Request
from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.config.load import Config
from toolcelld.config.resolution.settings import resolve
from toolcelld.lifecycle import CallState, WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.fair_queue import Places
from toolcelld.pool.idle import IdleRow
from toolcelld.pool.lease import Lease
from toolcelld.pool.pool import Pool
from toolcelld.pool.worker import CallListener, Worker
from toolcelld.protocol.messages import CallContext
from toolcelld.sandbox.policy import OPEN, CellLimits

pytestmark = pytest.mark.anyio

FILE = ToolFile("/t.py", "project", "local", "t", b"", "digest", "/")
STOP = Stop(Kind.ABORTED, "client", "by you")


class FakePool(Pool):
    """A pool whose one worker is granted by the test."""

    def __init__(self) -> None:
        self.places = Places(1)
        self.granted: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self.returned: list[tuple[object, WorkerEvent]] = []
        self.leases = 0
        self.warm: Worker | None = None

    def lease_now(self, row: IdleRow, places: Places) -> Worker | None:
        return self.warm

    def lease(self, row: IdleRow, places: Places, queue_seconds: float | None, **tool: Any) -> Lease:
        self.leases += 1
        return Lease(row, places, self.granted)

    def grant(self, worker: Worker) -> None:
        self.places.take()
        self.granted.set_result(worker)

    def _leave_queue(self, lease: Lease) -> None:
        self.leases -= 1

    def give_back(
        self, worker: object, event: WorkerEvent, places: Places, *, unconfirmed: bool = False
    ) -> None:
        self.returned.append((worker, event))
        places.give()

    def give_place(self, places: Places) -> None:
        places.give()


def a_call(session: FakeOwner) -> Call:
    return Call(Request(call_id="c-1", tool="t", arguments=b"{}"), session)


def a_plan() -> Plan:
    tool = ToolInfo("t", "", b"{}", FILE, "t", {})
    settings = resolve(Config(), "t", {}, "project")
    return Plan(tool, settings, settings.limits, IdleRow(CellSpec(FILE, "/", (), CellLimits(), OPEN)), 1, 1.0)


async def moments(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def is_consistent(call: Call) -> bool:
    """Whether the table and the call say the same of whether it has ended."""
    return (call.state is CallState.ENDED) == (call.ending is not None)


@pytest.mark.parametrize("moment", range(8))
async def test_a_stop_at_any_moment_of_waiting_ends_the_call_and_keeps_nothing(moment: int) -> None:
    pool = FakePool()
    async with asyncio.TaskGroup() as tasks:
        session = FakeOwner(pool.places, pool=pool, tasks=tasks)
        call = a_call(session)
        call.start(a_plan())
        await moments(moment)
        assert call.stop(STOP)
        assert call.outcome is not None
        assert (call.outcome.kind, call.outcome.ran) == (Kind.ABORTED, False)
        assert is_consistent(call)
        assert call.summary().state == call.state.value == "ended"
        assert not call.stop(STOP)
        assert call.done.done()
    assert session.ended == 1
    assert (pool.leases, pool.granted.cancelled()) == (0, True)
    assert pool.places.free == 1


async def test_a_call_that_waits_for_its_tool_is_waiting_and_can_be_stopped() -> None:
    pool = FakePool()
    async with asyncio.TaskGroup() as tasks:
        session = FakeOwner(pool.places, pool=pool, tasks=tasks)
        call = a_call(session)
        assert (call.state, call.summary().state) == (CallState.WAITING_TOOL, "waiting")
        assert (call.summary().path, call.summary().worker_id) == ("", "")
        assert call.stop(STOP)
    assert call.outcome is not None
    assert call.outcome.message == "by you; it had not started."
    assert (session.ended, pool.leases) == (1, 0)


async def test_a_worker_granted_in_the_moment_of_a_stop_goes_back() -> None:
    pool = FakePool()
    worker = cast("Worker", object())
    async with asyncio.TaskGroup() as tasks:
        session = FakeOwner(pool.places, pool=pool, tasks=tasks)
        call = a_call(session)
        call.start(a_plan())
        await moments(5)
        pool.grant(worker)
        assert call.stop(STOP)
    assert call.outcome is not None
    assert call.outcome.kind is Kind.ABORTED
    assert pool.returned == [(worker, WorkerEvent.DONE)]
    assert pool.places.free == 1
    assert session.ended == 1


class BrokenWorker:
    """A worker whose code has a bug where it takes a call."""

    id = "w-1"
    state = WorkerState.BUSY
    call_id = ""
    calls = 0
    listener = None
    several = False
    spec = CellSpec(FILE, "/", (), CellLimits(), OPEN)
    channel = SimpleNamespace(redactor=None)

    def __init__(self) -> None:
        self.cell = self
        self.over = False

    def begin(self, tool: str, arguments: bytes, context: CallContext, listener: CallListener) -> int:
        raise RuntimeError("a bug")

    def end(self) -> None:
        self.over = True


@pytest.mark.parametrize("warm", [True, False])
async def test_a_call_that_fails_by_a_bug_has_ended_in_the_table_too(
    warm: bool,
) -> None:
    pool, worker = FakePool(), BrokenWorker()
    async with asyncio.TaskGroup() as tasks:
        session = FakeOwner(pool.places, pool=pool, tasks=tasks)
        call = a_call(session)
        if warm:
            pool.places.take()
            pool.warm = cast("Worker", worker)
        call.start(a_plan())
        if not warm:
            pool.grant(cast("Worker", worker))
            await moments(2)
    assert call.outcome is not None
    assert (call.outcome.kind, call.outcome.cause, call.outcome.ran) == (Kind.INTERNAL, "failure", True)
    assert call.state is CallState.ENDED
    assert worker.over
    assert pool.places.free == 1
    assert (session.ended, call.stop(STOP)) == (1, False)


async def test_a_bug_while_a_call_waits_ends_it() -> None:
    pool = FakePool()
    async with asyncio.TaskGroup() as tasks:
        session = FakeOwner(pool.places, pool=pool, tasks=tasks)
        call = a_call(session)
        call.start(a_plan())
        await moments(5)
        pool.granted.set_exception(RuntimeError("a bug"))
        await moments(2)
    assert call.outcome is not None
    assert (call.outcome.kind, call.outcome.ran) == (Kind.INTERNAL, False)
    assert call.state is CallState.ENDED
    assert session.ended == 1


@pytest.mark.parametrize("body_bytes", [0, 100, 60_000, 300_000])
async def test_an_outcome_is_cut_into_messages_whatever_stands_around_its_body(body_bytes: int) -> None:
    body = bytes(body_bytes)
    around = Outcome(Kind.TOOL_ERROR, "", "é" * 4000, b'{"title": "%s"}' % (b"x" * 30_000))
    first, *rest = parts("c-1", around, body)
    assert isinstance(first, events.CallEnded)
    assert first.more is bool(rest)
    assert [chunk.last for chunk in rest] == [False] * (len(rest) - 1) + [True] * bool(rest)
    assert b"".join([first.body, *(chunk.data for chunk in rest)]) == body
    assert all(event.size_bytes <= MESSAGE_BYTES for event in (first, *rest))


@pytest.mark.parametrize(
    ("tool", "state"),
    [
        ("undescribed", CallState.WAITING_TOOL),
        ("hooked", CallState.WAITING_HOOKS),
        ("asked", CallState.WAITING_PERMISSION),
        ("queues", CallState.WAITING_WORKER),
        ("runs", CallState.RUNNING),
    ],
)
async def test_a_call_waits_in_the_state_of_what_it_waits_for(tool: str, state: CallState) -> None:
    async with staged() as stage:
        line = stage.attach(answers=True, services=True)
        line.send(call=pb.Call(call_id="c-1", tool=tool, arguments=b"{}"))
        await stage.settle()
        (call,) = stage.calls
        assert call.state is state
        assert call.summary().state == ("running" if tool == "runs" else "waiting")
