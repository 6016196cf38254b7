"""The outbox against a client that loses its line: what may not be lost is not, the rest is counted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.calls.events import (
    MESSAGE_BYTES,
    CallAccepted,
    Chunk,
    Event,
    EventsDropped,
    LineLogged,
    MetadataSet,
    PartialResult,
    ProgressMade,
)
from toolcelld.sessions.outbox import RETAINED_BYTES_MAX, Outbox

pytestmark = pytest.mark.anyio

CALLS = ("a", "b", "c")
GAP_BYTES = EventsDropped(1).size_bytes
BOUND_BYTES = 2 * MESSAGE_BYTES
"""Little, so that it is often reached."""


@dataclass(frozen=True, slots=True)
class Put:
    call_id: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class Take:
    """The client reads a message."""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    share: float  # of what it has not acknowledged yet


@dataclass(frozen=True, slots=True)
class Break:
    """The line breaks while so many messages are under way."""

    lost: int


Step: TypeAlias = Put | Take | Acknowledge | Break

PUTS = st.builds(
    Put,
    st.sampled_from(CALLS),
    st.sampled_from(["chunk", "log", "log", "log", "update", "progress", "metadata"]),
    st.sampled_from([0, 1000, 20_000, 50_000, 120_000]),
)
ACKNOWLEDGES = st.builds(Acknowledge, st.sampled_from([0.0, 0.3, 1.0]))
STEPS = st.lists(
    st.one_of(PUTS, PUTS, PUTS, st.builds(Take), ACKNOWLEDGES, st.builds(Break, st.just(0))),
    min_size=10,
    max_size=40,
)
LOSSY_STEPS = st.lists(
    st.one_of(PUTS, PUTS, PUTS, st.builds(Take), ACKNOWLEDGES, st.builds(Break, st.integers(0, 3))),
    min_size=10,
    max_size=40,
)


def event_of(step: Put, tag: int) -> Event:
    filler = "x" * step.size
    match step.kind:
        case "chunk":
            return Chunk(f"{tag}:".encode() + filler[:50_000].encode(), last=False, call_id=step.call_id)
        case "log":
            return LineLogged("info", "log", f"{tag}:{filler}", call_id=step.call_id)
        case "update":
            return PartialResult(f"{tag}:{filler}".encode(), call_id=step.call_id)
        case "progress":
            return ProgressMade(tag, None, filler[:1000], call_id=step.call_id)
        case _:
            return MetadataSet("", f"{tag}:{filler}".encode(), call_id=step.call_id)


def tag_of(event: Event) -> int:
    match event:
        case Chunk():
            return int(event.data.partition(b":")[0])
        case LineLogged():
            return int(event.text.partition(":")[0])
        case PartialResult():
            return int(event.body.partition(b":")[0])
        case ProgressMade():
            return int(event.done)
        case MetadataSet():
            return int(event.values.partition(b":")[0])
        case _:
            return -1


@dataclass
class World:
    """An outbox and its client, and what the two should come to."""

    outbox: Outbox = field(default_factory=lambda: Outbox(BOUND_BYTES))
    seen: int = 0
    acknowledged: int = 0
    line: list[list[Event]] = field(default_factory=list[list[Event]])
    got: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list[Event]))
    kept: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list[int]))
    newest: dict[str, int] = field(default_factory=dict[str, int])
    droppable: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    waiting: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    staying_bytes: int = 0
    lost: bool = False

    def open_calls(self) -> None:
        for call_id in CALLS:
            self.outbox.put(CallAccepted(0, call_id=call_id))
            self.staying_bytes += GAP_BYTES

    def put(self, step: Put, tag: int) -> None:
        event = event_of(step, tag)
        if event.droppable:
            self.droppable[step.call_id] += 1
        else:
            self.kept[step.call_id].append(tag)
            self.staying_bytes += event.size_bytes
        if step.kind == "update":
            self.newest[step.call_id] = tag
        self.outbox.put(event)
        gaps = 3 * len(CALLS) * GAP_BYTES
        assert self.outbox.retained_bytes <= BOUND_BYTES + self.staying_bytes + gaps

    def take(self) -> bool:
        message = self.outbox.take()
        assert len(message) == 1 or sum(event.size_bytes for event in message) <= MESSAGE_BYTES
        numbers = [event.number for event in message]
        assert numbers == sorted(set(numbers))
        self.line.append(message)
        return bool(message)

    def arrive(self, messages: list[list[Event]]) -> None:
        for message in messages:
            for event in message:
                if event.number > self.seen:
                    self.seen = event.number
                    self.got[event.call_id].append(event)

    def acknowledge(self, share: float) -> None:
        self.arrive(self.line)
        self.line.clear()
        self.acknowledged += int((self.seen - self.acknowledged) * share)
        self.outbox.acknowledge(self.acknowledged)

    def break_line(self, lost: int) -> None:
        arrived = max(0, len(self.line) - lost)
        self.lost |= any(self.line[arrived:])
        self.arrive(self.line[:arrived])
        self.line.clear()
        self.outbox.rewind()

    def finish(self) -> None:
        while self.take():
            pass
        self.acknowledge(1.0)


async def run(steps: list[Step]) -> World:
    world = World()
    world.open_calls()
    for tag, step in enumerate(steps):
        match step:
            case Put():
                world.put(step, tag)
            case Take():
                world.take()
            case Acknowledge(share):
                world.acknowledge(share)
            case Break(lost):
                world.break_line(lost)
    world.finish()
    return world


@given(LOSSY_STEPS)
async def test_what_must_not_be_lost_arrives_once_and_in_order(steps: list[Step]) -> None:
    world = await run(steps)
    for call_id in CALLS:
        arrived = [tag_of(event) for event in world.got[call_id] if isinstance(event, Chunk)]
        assert arrived == world.kept[call_id]


@given(LOSSY_STEPS)
async def test_a_calls_first_event_arrives_first(steps: list[Step]) -> None:
    world = await run(steps)
    for call_id in CALLS:
        assert isinstance(world.got[call_id][0], CallAccepted)


@given(LOSSY_STEPS)
async def test_everything_acknowledged_leaves_no_byte_behind(steps: list[Step]) -> None:
    world = await run(steps)
    assert world.outbox.retained_bytes == 0
    assert world.outbox.empty
    assert not world.outbox.ready.is_set()


def counted(world: World, call_id: str) -> tuple[int, int]:
    """What arrived of that which may go, and what gaps say of the rest."""
    arrived = sum(event.droppable for event in world.got[call_id])
    gaps = sum(event.count for event in world.got[call_id] if isinstance(event, EventsDropped))
    return arrived, gaps


def without_replacing(steps: list[Step]) -> list[Step]:
    return [step for step in steps if not (isinstance(step, Put) and step.kind in ("update", "progress"))]


@given(STEPS.map(without_replacing))
async def test_gaps_count_exactly_what_had_to_go(steps: list[Step]) -> None:
    world = await run(steps)
    for call_id in CALLS:
        arrived, gaps = counted(world, call_id)
        assert arrived + gaps == world.droppable[call_id]


@given(LOSSY_STEPS.map(without_replacing))
async def test_gaps_miss_nothing_when_the_line_loses_messages(steps: list[Step]) -> None:
    world = await run(steps)
    for call_id in CALLS:
        arrived, gaps = counted(world, call_id)
        assert arrived + gaps >= world.droppable[call_id]
        assert world.lost or arrived + gaps == world.droppable[call_id]


@given(LOSSY_STEPS)
async def test_the_newest_update_arrives_last_of_its_kind_or_stands_in_a_gap(steps: list[Step]) -> None:
    world = await run(steps)
    for call_id, tag in world.newest.items():
        updates = [tag_of(event) for event in world.got[call_id] if isinstance(event, PartialResult)]
        assert updates == sorted(updates)
        assert updates[-1:] == [tag] or counted(world, call_id)[1]


async def test_an_update_takes_the_place_of_the_one_that_waits() -> None:
    outbox = Outbox()
    outbox.put(PartialResult(b"first", call_id="a"))
    outbox.put(ProgressMade(1, 2, "half", call_id="a"))
    outbox.put(PartialResult(b"second", call_id="a"))
    outbox.put(PartialResult(b"of another call", call_id="b"))
    bodies = [event.body for event in outbox.take() if isinstance(event, PartialResult)]
    assert bodies == [b"second", b"of another call"]
    outbox.put(PartialResult(b"third", call_id="a"))
    assert [tag.body for tag in outbox.take() if isinstance(tag, PartialResult)] == [b"third"]


async def test_two_long_results_take_turns() -> None:
    outbox = Outbox()
    for call_id in ("a", "b"):
        for _ in range(4):
            outbox.put(Chunk(b"x" * 40_000, last=False, call_id=call_id))
    order = ""
    while message := outbox.take():
        order += "".join(event.call_id for event in message)
    assert order == "abababab"


async def test_what_is_sent_again_is_cut_into_messages_as_well() -> None:
    outbox = Outbox()
    for _ in range(3):
        outbox.put(Chunk(b"x" * 40_000, last=False, call_id="a"))
    while outbox.take():
        pass
    outbox.rewind()
    outbox.put(Chunk(b"new", last=True, call_id="b"))
    assert [[event.number for event in outbox.take()] for _ in range(3)] == [[1], [2], [3, 4]]


async def test_replacing_a_small_update_by_a_large_one_keeps_the_bound() -> None:
    outbox = Outbox()
    for number in range(16):
        outbox.put(PartialResult(b"", call_id=str(number)))
    for number in range(16):
        outbox.put(PartialResult(b"x" * 250_000, call_id=str(number)))
    assert outbox.retained_bytes <= RETAINED_BYTES_MAX + 16 * GAP_BYTES


async def test_an_urgent_event_wakes_the_writer_at_once_and_takes_the_others_along() -> None:
    outbox = Outbox()
    outbox.put(CallAccepted(0, call_id="a"))
    assert not outbox.ready.is_set()
    outbox.put(Chunk(b"", last=True, call_id="a"))
    assert outbox.ready.is_set()
    assert [type(event) for event in outbox.take()] == [CallAccepted, Chunk]


async def test_an_event_without_company_wakes_the_writer_after_a_moment() -> None:
    outbox = Outbox()
    outbox.put(CallAccepted(0, call_id="a"))
    await outbox.ready.wait()
    assert len(outbox.take()) == 1
