"""A client with the agent's token that reads nothing, or sends much, is refused; the daemon's memory is bounded."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs]
from tests.daemons import RunningDaemon, running_daemon
from tests.process.wire import Wire, dialled, refusal_of_rpc

from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

MIB = 2**20
CONFIG = """
trust = "all"

[daemon]
sessions = 12
retained_per_session = "32MiB"
retained = "64MiB"
"""
PNG_BYTES = 6 * MIB
BODY_BYTES = PNG_BYTES * 4 // 3
REFUSALS_MAX = 5000
"""More than the 3 MiB have room for that are left to a session whose arguments take 30 MiB."""
GROWTH_BYTES_MAX = 200 * MIB
"""Of the daemon: what it may hold, twice, and what its workers send at the moment."""

TOOLS = f"""
    import pathlib, time
    from toolcell import Image, tool

    @tool
    def big() -> Image:
        return Image(data=b"\\x89PNG\\r\\n\\x1a\\n" + bytes({PNG_BYTES}))

    @tool
    def small() -> str:
        return "small"

    @tool
    def hold(text: str = "") -> None:
        time.sleep(1000)
    """


class Hoarder:
    """A stream that reads everything and acknowledges nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.seen: Counter[str] = Counter()
        self.refusals: list[Any] = []
        self.outcomes: dict[str, pb.Outcome] = {}
        self.number = 0

    async def send(self, **message: Any) -> None:
        await self.stream.write(pb.AttachRequest(**message))

    async def call(self, call_id: str, tool: str) -> None:
        await self.send(call=pb.Call(call_id=call_id, tool=f"hoard_{tool}", arguments=b"{}"))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Read until a condition holds."""
        while not condition():
            message = await self.stream.read()
            assert message is not grpc.aio.EOF, self.seen
            for event in message.events:
                kind = event.WhichOneof("event")
                self.seen[kind] += 1
                self.number = max(self.number, event.number)
                if kind == "refused":
                    self.refusals.append(event.refused)
                elif kind == "outcome":
                    self.outcomes[event.call_id] = event.outcome

    @property
    def ended(self) -> int:
        return self.seen["outcome"] + self.seen["refused"]


def _refused(hoarder: Hoarder, count: int) -> bool:
    return hoarder.seen["refused"] >= count


async def _collect_refusals(hoarder: Hoarder) -> None:
    for number in range(REFUSALS_MAX):
        await hoarder.send(chunk=pb.Chunk(call_id=f"{number:0>100}"))
        await hoarder.until(functools.partial(_refused, hoarder, number + 1))


def _have_ended(count: int, *hoarders: Hoarder) -> bool:
    return sum(hoarder.ended for hoarder in hoarders) >= count


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[RunningDaemon]:
    with running_daemon(config=CONFIG) as daemon:
        yield daemon


@asynccontextmanager
async def attached(wire: Wire, daemon: RunningDaemon) -> AsyncGenerator[Hoarder]:
    stream = wire.tools.Attach(metadata=wire.agent)
    await stream.write(
        pb.AttachRequest(open=pb.Open(protocol=1, agent="hoarder", directory=str(daemon.project)))
    )
    hoarder = Hoarder(stream)
    await hoarder.until(lambda: hoarder.seen["catalog"] > 0)
    try:
        yield hoarder
    finally:
        await stream.write(pb.AttachRequest(close=pb.Close()))
        await stream.done_writing()
        while await stream.read() is not grpc.aio.EOF:
            pass


def quota_of(status: Any) -> tuple[int, str]:
    """The code of a refusal and the subject of its QuotaFailure."""
    found = error_details_pb2.QuotaFailure()
    for detail in status.details:
        if detail.Is(found.DESCRIPTOR):
            detail.Unpack(found)
    return status.code, found.violations[0].subject if found.violations else ""


@pytest.mark.slow
async def test_outcomes_that_are_not_acknowledged_stop_further_calls_until_they_are(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("hoard", TOOLS)
    daemon.describe()
    before = daemon.status().memory_bytes
    async with dialled(daemon) as wire, attached(wire, daemon) as hoarder:
        for number in range(40):
            await hoarder.call(f"c-{number}", "big")
        await hoarder.until(lambda: hoarder.ended == 40)
        kinds = Counter((pb.OutcomeKind.Name(found.kind), found.cause) for found in hoarder.outcomes.values())
        assert kinds["OUTCOME_KIND_OK", ""] * BODY_BYTES <= 32 * MIB
        assert kinds["OUTCOME_KIND_LIMIT_EXCEEDED", "unread_outcomes"] + hoarder.seen["refused"] >= 36
        assert daemon.status().memory_bytes - before < GROWTH_BYTES_MAX
        # The last small ones still find room; one of the size of what is free does not.
        text = b'{"text": "' + b"x" * 40_000
        await hoarder.send(
            call=pb.Call(call_id="large", tool="hoard_hold", arguments=text, arguments_bytes=15 * MIB)
        )
        await hoarder.until(lambda: hoarder.seen["refused"] > 0)
        assert quota_of(hoarder.refusals[-1]) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED.value[0],
            "[daemon] retained_per_session = 32 MiB",
        )
        await hoarder.send(acknowledged=hoarder.number)
        done = hoarder.seen["outcome"]
        await hoarder.call("again", "big")
        await hoarder.until(lambda: hoarder.seen["outcome"] > done)
        assert hoarder.outcomes["again"].kind == pb.OUTCOME_KIND_OK


@pytest.mark.slow
async def test_a_neighbour_is_served_while_all_sessions_hold_too_much(daemon: RunningDaemon) -> None:
    daemon.tool("hoard", TOOLS)
    daemon.describe()
    async with (
        dialled(daemon) as wire,
        attached(wire, daemon) as one,
        attached(wire, daemon) as two,
        attached(wire, daemon) as three,
        daemon.connect() as session,
    ):
        for sent, hoarder in ((8, one), (16, two), (24, three)):
            for number in range(8):
                await hoarder.call(f"c-{number}", "big")
            await hoarder.until(functools.partial(_have_ended, sent, one, two, three))
        assert (await session.call("hoard_small", {})).text == "small"


@pytest.mark.slow
async def test_arguments_that_are_announced_and_never_come_are_counted(daemon: RunningDaemon) -> None:
    daemon.tool("hoard", TOOLS)
    daemon.describe()
    async with dialled(daemon) as wire, attached(wire, daemon) as hoarder:
        for number in range(3):
            call = pb.Call(call_id=f"c-{number}", tool="hoard_hold", arguments_bytes=15 * MIB)
            await hoarder.send(call=call)
        await hoarder.until(lambda: hoarder.seen["refused"] == 1)
        assert quota_of(hoarder.refusals[0])[1] == "[daemon] retained_per_session = 32 MiB"
        await hoarder.send(abort=pb.Abort(call_id="c-0"))
        await hoarder.until(lambda: hoarder.seen["refused"] == 2)  # it had not begun
        await hoarder.send(call=pb.Call(call_id="c-3", tool="hoard_hold", arguments_bytes=15 * MIB))
        await hoarder.call("end", "small")
        await hoarder.until(lambda: hoarder.seen["outcome"] == 1)
        assert hoarder.seen["refused"] == 2


@pytest.mark.slow
async def test_a_client_that_collects_refusals_loses_its_stream(daemon: RunningDaemon) -> None:
    async with dialled(daemon) as wire:
        stream = wire.tools.Attach(metadata=wire.agent)
        await stream.write(
            pb.AttachRequest(
                open=pb.Open(protocol=1, agent="hoarder", directory=str(daemon.project), linger_seconds=0)
            )
        )
        hoarder = Hoarder(stream)
        await hoarder.until(lambda: hoarder.seen["catalog"] > 0)
        for number in range(2):
            await hoarder.send(call=pb.Call(call_id=f"c-{number}", tool="none", arguments_bytes=15 * MIB))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _collect_refusals(hoarder)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refusal_of_rpc(caught.value).reason == "BUSY"


async def test_the_number_of_sessions_is_a_setting(daemon: RunningDaemon) -> None:
    async with dialled(daemon) as wire:
        streams: list[Any] = []
        for _ in range(12):
            stream = wire.tools.Attach(metadata=wire.agent)
            opened = pb.Open(protocol=1, agent="hoarder", directory=str(daemon.project), linger_seconds=0)
            await stream.write(pb.AttachRequest(open=opened))
            await stream.read()
            streams.append(stream)
        stream = wire.tools.Attach(metadata=wire.agent)
        await stream.write(
            pb.AttachRequest(open=pb.Open(protocol=1, agent="hoarder", directory=str(daemon.project)))
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refusal_of_rpc(caught.value).reason == "BUSY"
        assert (caught.value.details() or "").endswith("toolcell config set daemon.sessions 24")
        details = dict(caught.value.trailing_metadata() or ())["grpc-status-details-bin"]
        assert isinstance(details, bytes)
        assert quota_of(status_pb2.Status.FromString(details))[1] == "[daemon] sessions = 12"
        for stream in streams:
            stream.cancel()
