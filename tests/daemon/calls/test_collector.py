"""What is heard of a call: anything a worker may say ends in events that the wire can carry."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemon.calls.owner import FakeOwner

from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.calls import events
from toolcelld.calls.events import MESSAGE_BYTES
from toolcelld.calls.questions import Questions
from toolcelld.calls.run import Run
from toolcelld.calls.timers import UNIT_BYTES, UNITS_MAX, WINDOW_SECONDS
from toolcelld.config.load import Config
from toolcelld.config.resolution.settings import Limits, resolve
from toolcelld.event_log import TEXT_CHARACTERS_MAX
from toolcelld.output.result import Result
from toolcelld.output.spill import KeptOutput
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import (
    LOST_MAX,
    METADATA_BYTES_MAX,
    THREADS_MAX,
    AnswerMessage,
    MessageError,
    ReplyMessage,
)
from toolcelld.rpc.messages.encoding import encode_event

pytestmark = pytest.mark.anyio

MESSAGE_BYTES_MAX = 64 * 1024  # of the contract
SEQUENCE = 3
WHOLE: dict[str, dict[str, Any]] = {
    "result": {"kind": "ok", "ran": True, "blocks": [], "cpu": 0, "rss": 0, "threads": 0},
    "progress": {"done": 0},
    "ask": {"ask": 1, "question": "?"},
    "withdraw": {"ask": 1},
}
"""What a message has to have."""


class FakeCell:
    """A cell, and its wire, that only remembers that it was broken off."""

    def __init__(self) -> None:
        self.broken: list[FrameError] = []
        self.holds = 0
        self.channel = self
        self.stdio = self

    def fail(self, error: FrameError) -> None:
        self.broken.append(error)

    def drain(self) -> None:
        """Nothing was printed."""

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        """What was held is passed on."""


def on_the_wire(event: events.Event) -> pb.Event:
    wire = pb.Event()
    encode_event(event, wire)
    return wire


class NoDisk:
    """Spills that keep nothing."""

    bytes_per_call = 0
    failure = ""

    def release(self, count_bytes: int) -> None:
        """Nothing was reserved."""


class Heard(Run):
    """A run whose call does not end with it."""

    heard: Hearing

    def over(self) -> None:
        self.heard.overs += 1

    def ask(self) -> Questions:
        return self.heard.questions


class Hearing:
    """A run and what its call was told."""

    def __init__(self, limits: Limits | None = None, session: FakeOwner | None = None) -> None:
        self.session = session or FakeOwner(spills=NoDisk())
        self.cell = FakeCell()
        self.replies: list[AnswerMessage | ReplyMessage] = []
        self.overs = self.signs = 0
        self.questions = Questions(
            "c-1",
            "t",
            self.session,
            lambda message, _: self.replies.append(message),
            lambda: None,
            lambda _: None,
        )
        resolved = resolve(Config(), "t", {}, "project")
        self.call = SimpleNamespace(id="c-1", session=self.session)
        self.plan = SimpleNamespace(
            tool=SimpleNamespace(name="t"), settings=resolved, limits=limits or resolved.limits
        )
        self.session.services.pool = cast("Any", None)
        self.worker = SimpleNamespace(
            cell=self.cell, calls=SEQUENCE - 1, spec=SimpleNamespace(serial=False), listener=None
        )
        self.call.accepted = 0.0
        self.run = Heard(cast("Any", self.call), cast("Any", self.plan), cast("Any", self.worker))
        self.run.heard = self
        self.run.idle = cast("Any", self)
        self.collector = self.run.collector()

    def sign(self) -> None:
        self.signs += 1

    def hear(self, type_: str, payload: bytes = b"", /, *, seq: object = SEQUENCE, **header: object) -> None:
        self.run.on_frame(Frame({"type": type_, "seq": seq, **WHOLE.get(type_, {}), **header}, payload))

    def settle_now(self) -> Result | None:
        return self.collector.settle_now(self.run._short)  # pyright: ignore[reportPrivateUsage]

    async def settle(self, *, cancelled: bool) -> tuple[Result, tuple[KeptOutput, ...]]:
        return await self.collector.settle(self.run._short, cancelled=cancelled)  # pyright: ignore[reportPrivateUsage]


async def test_a_result_in_one_frame_is_the_report() -> None:
    hearing = Hearing()
    hearing.hear(
        "result",
        b"412",
        kind="ok",
        ran=True,
        blocks=[{"type": "text", "bytes": 3}],
        cpu=0.5,
        rss=4096,
        threads=1,
    )
    report = hearing.run.report
    assert report is not None
    assert (report.kind, report.ran, report.cpu_seconds, report.memory_peak_bytes, report.threads) == (
        "ok",
        True,
        0.5,
        4096,
        1,
    )
    assert hearing.overs == 1
    result = hearing.settle_now()
    assert result is not None
    assert json.loads(result.body)["content"] == [{"type": "text", "text": "412"}]


async def test_words_about_another_call_are_not_heard() -> None:
    hearing = Hearing()
    for seq in (SEQUENCE - 1, SEQUENCE + 1, None, "3"):
        hearing.hear("progress", done=1, seq=seq)
        hearing.hear("nonsense", seq=seq)
    assert (hearing.session.told, hearing.signs, hearing.cell.broken) == ([], 0, [])


@pytest.mark.parametrize("kind", ["chunk", "loaded", "hello", "nonsense", ""])
async def test_a_frame_that_has_no_place_in_a_call_ends_the_cell(kind: str) -> None:
    hearing = Hearing()
    hearing.hear(kind)
    assert len(hearing.cell.broken) == 1


async def test_a_second_result_before_the_first_is_whole_ends_the_cell() -> None:
    hearing = Hearing()
    for _ in range(2):
        hearing.hear("result", b"", kind="ok", blocks=[{"type": "text", "bytes": 3}], size=3)
    assert str(hearing.cell.broken[0]) == "a second result"


async def test_a_long_line_comes_in_pieces_and_none_is_lost() -> None:
    hearing = Hearing()
    text = "é" * (2 * TEXT_CHARACTERS_MAX + 1)
    hearing.hear("log", json.dumps([{"level": "info", "text": text}]).encode(), lost=2)
    assert "".join(hearing.session.lines[:-1]) == text
    assert hearing.session.lines[-1].startswith("2 lines were lost")
    assert [len(line) for line in hearing.session.lines[:-1]] == [TEXT_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, 1]
    told = [event.text for event in hearing.session.told if isinstance(event, events.LineLogged)]
    assert "".join(told) == text
    assert all(len(piece.encode()) <= 16 * 1024 for piece in told)


@pytest.mark.parametrize(
    ("said", "told"), [({}, []), ({"lost": 0}, []), ({"lost": 2}, [2]), ({"lost": LOST_MAX}, [LOST_MAX])]
)
async def test_lines_that_the_worker_could_not_keep_are_told_as_a_gap(
    said: dict[str, int], told: list[int]
) -> None:
    hearing = Hearing()
    hearing.hear("log", b"[]", **said)
    assert [event.count for event in hearing.session.told if isinstance(event, events.EventsDropped)] == told
    assert not hearing.cell.broken


async def test_metadata_is_merged_up_to_its_bound_and_the_result_has_the_last_word() -> None:
    hearing = Hearing()
    hearing.hear("metadata", b'{"title":"one","n":1}')
    hearing.hear("metadata", json.dumps({"big": "x" * METADATA_BYTES_MAX}).encode())
    assert hearing.collector.metadata == {"title": "one", "n": 1}
    assert any("dropped" in line for line in hearing.session.lines)
    hearing.hear("result", b'{"n":2}', kind="ok", metadata=7)
    assert hearing.settle_now() is not None
    assert hearing.collector.metadata == {"title": "one", "n": 2}


async def test_metadata_with_a_number_that_is_none_is_dropped() -> None:
    hearing = Hearing()
    hearing.hear("metadata", b'{"rows": 1}')
    hearing.hear("metadata", b'{"rows": 1e999}')
    assert hearing.collector.metadata == {"rows": 1}
    assert [event.values for event in hearing.session.told if isinstance(event, events.MetadataSet)] == [
        b'{"rows": 1}'
    ]


async def test_a_stopped_call_has_its_last_update_whole() -> None:
    hearing = Hearing()
    text = "x" * 45_000
    update = {"content": [{"type": "text", "text": text}], "details": "x" * 40_000}
    hearing.hear("update", json.dumps(update).encode())
    result, _ = await hearing.settle(cancelled=True)
    assert json.loads(result.body)["content"][0]["text"] == text
    (shown,) = hearing.session.told
    assert on_the_wire(shown).ByteSize() <= MESSAGE_BYTES_MAX


async def test_an_update_is_held_to_what_the_call_asked_for() -> None:
    hearing = Hearing(Limits(output_lines=3))
    hearing.hear("update", json.dumps({"content": [{"type": "text", "text": "line\n" * 50}]}).encode())
    (shown,) = hearing.session.told
    assert isinstance(shown, events.PartialResult)
    assert json.loads(shown.body)["content"][0]["text"].count("line\n") < 3


@pytest.mark.parametrize("message", ["", "a\ud800", "\udfff" * 5000])
async def test_a_line_of_progress_is_text_whatever_was_sent(message: str) -> None:
    hearing = Hearing()
    hearing.hear("progress", done=-1e300, total=1e300, message=message)
    (event,) = hearing.session.told
    wire = on_the_wire(event).progress
    assert (wire.done, wire.total) == (0, 0)
    assert len(wire.message) <= 1000


async def test_the_figures_of_a_result_are_those_of_its_report() -> None:
    hearing = Hearing()
    hearing.hear("result", cpu=1, rss=2**40, threads=THREADS_MAX)
    report = hearing.run.report
    assert report is not None
    assert (report.cpu_seconds, report.memory_peak_bytes, report.threads) == (1, 2**40, THREADS_MAX)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("result", {"cpu": -1}),
        ("result", {"rss": -5}),
        ("result", {"threads": -1}),
        ("result", {"cpu": 1e300}),
        ("result", {"rss": 2**70}),
        ("result", {"threads": 2**40}),
        ("result", {"cpu": "1"}),
        ("result", {"rss": None}),
        ("result", {"threads": [1]}),
        ("result", {"cpu": True}),
        ("result", {"rss": True}),
        ("result", {"threads": True}),
        ("result", {"kind": "timed_out"}),
        ("result", {"ran": 1}),
        ("result", {"limit": "memory"}),
        ("log", {"lost": 10**12}),
        ("log", {"lost": 2**62}),
        ("log", {"lost": -1}),
        ("log", {"lost": True}),
        ("log", {"lost": "3"}),
        ("progress", {"done": "half"}),
        ("progress", {"total": "all"}),
        ("progress", {"message": 7}),
        ("progress", {"message": None}),
        ("ask", {"ask": True}),
        ("ask", {"patterns": "all"}),
        ("withdraw", {"ask": "1"}),
    ],
)
async def test_a_message_that_breaks_a_rule_ends_the_cell_and_says_which(
    kind: str, said: dict[str, object]
) -> None:
    hearing = Hearing()
    hearing.hear(kind, b"[]" if kind == "log" else b"", **said)
    (error,) = hearing.cell.broken
    assert isinstance(error, MessageError)
    assert (error.message, error.field) == (kind, *said)
    assert (hearing.session.told, hearing.run.report) == ([], None)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["\ud800", 1e300, -5, 2**40]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
KINDS = st.sampled_from(["update", "progress", "metadata", "log", "ask", "withdraw", "result", "chunk"])
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "done",
            "total",
            "message",
            "lost",
            "ask",
            "question",
            "permission",
            "patterns",
            "always",
            "blocks",
            "details",
            "title",
            "size",
            "kind",
            "ran",
            "cpu",
            "rss",
            "threads",
        ]
    ),
    JSON,
)
NOTHING: dict[str, Any] = {}
RECORDS = st.lists(st.fixed_dictionaries({"level": JSON, "text": st.text()}))
UPDATES = st.fixed_dictionaries({"content": st.lists(JSON), "details": JSON})
PAYLOADS = st.binary(max_size=20) | (JSON | RECORDS | UPDATES).map(lambda value: json.dumps(value).encode())


@given(st.lists(st.tuples(KINDS, st.just(NOTHING) | HEADERS, PAYLOADS), max_size=6))
async def test_whatever_a_worker_says_the_wire_can_carry_what_is_told(
    said: list[tuple[str, dict[str, Any], bytes]],
) -> None:
    hearing = Hearing()
    for kind, header, payload in said:
        if not hearing.cell.broken:
            whole = {**WHOLE.get(kind, {}), **header, "type": kind, "seq": SEQUENCE}
            hearing.run.on_frame(Frame(whole, payload))
    hearing.questions.close("over")
    for event in hearing.session.told:
        assert event.size_bytes <= MESSAGE_BYTES
        assert on_the_wire(event).ByteSize() <= MESSAGE_BYTES_MAX
    report = hearing.run.report
    if report is not None:
        assert report.cpu_seconds >= 0
        assert 0 <= report.threads < 2**32
        assert 0 <= report.memory_peak_bytes < 2**64
    hearing.collector.discard()


async def test_a_chore_that_ended_just_now_does_not_hold_up_the_end() -> None:
    hearing = Hearing()
    hearing.hear("result", b"", kind="ok", ran=True, blocks=[])

    async def chore() -> None:
        """Nothing to write after all."""

    hearing.collector._do(chore())  # pyright: ignore[reportPrivateUsage]  # real chores write to a disk
    await asyncio.sleep(0)  # it is done, but the loop has not told those who asked to know
    assert hearing.settle_now() is None
    result, logs = await hearing.settle(cancelled=False)
    assert (json.loads(result.body)["content"], logs) == ([], ())


@pytest.mark.parametrize(
    ("type_", "payload", "messages"),
    [
        ("progress", b"", UNITS_MAX),
        ("metadata", b'{"k": 1}', UNITS_MAX),
        ("update", b'{"content": [], "details": null}', UNITS_MAX),
        ("log", json.dumps([{"level": "info", "text": "x"}] * (UNITS_MAX // 4)).encode(), 4),
        ("metadata", json.dumps({"k": "x" * 12 * UNIT_BYTES}).encode(), UNITS_MAX // 20),
    ],
    ids=["progress", "metadata", "update", "log", "large metadata"],
)
async def test_a_tool_that_sends_without_a_pause_is_held_after_so_many_messages(
    monkeypatch: pytest.MonkeyPatch, type_: str, payload: bytes, messages: int
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 1000.0)
    hearing = Hearing()
    timers: list[float] = []

    def call_later(seconds: float, _: object) -> None:
        timers.append(seconds)

    monkeypatch.setattr(loop, "call_later", call_later)
    sent = 0
    while not hearing.cell.holds:
        hearing.hear(type_, payload, **({"lost": 0} if type_ == "log" else {}))
        sent += 1
        assert sent <= messages
    assert sent > messages // 4
    assert timers == [pytest.approx(WINDOW_SECONDS, rel=1.5)]


def never(_: float, __: object) -> None:
    """No timer ends."""


async def test_the_calls_of_a_session_share_one_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 1000.0)
    session = FakeOwner(spills=NoDisk())
    calls = [Hearing(session=session) for _ in range(8)]
    monkeypatch.setattr(loop, "call_later", never)
    for number in range(UNITS_MAX):
        assert not any(call.cell.holds for call in calls)
        calls[number % len(calls)].hear("progress")
    assert [call.cell.holds for call in calls] == [0] * (len(calls) - 1) + [1]


@pytest.mark.parametrize("type_", ["progress", "result"])
async def test_messages_about_a_call_that_is_over_are_taken_at_the_same_rate(
    monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 1000.0)
    hearing = Hearing()
    monkeypatch.setattr(loop, "call_later", never)
    for _ in range(UNITS_MAX):
        assert not hearing.cell.holds
        hearing.hear(type_, seq=SEQUENCE - 1)
    assert hearing.cell.holds == 1
