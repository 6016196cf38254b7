"""A worker with several calls: whose its frames and its output are, and what a hostile one achieves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.daemon.pool.test_pool import spec

from toolcelld.event_log import LogLine
from toolcelld.lifecycle import WorkerEvent
from toolcelld.pool import shared_worker
from toolcelld.pool.shared_worker import LISTS_MAX, STALE_MAX, SharedWorker
from toolcelld.pool.startup import Startup
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import CALLS_MAX, DESCRIPTION_BYTES_MAX, MessageError, from_worker

pytestmark = pytest.mark.anyio


class Listener:
    """A call that keeps what it is told."""

    def __init__(self, *, has_reported: bool = False) -> None:
        self.told: list[object] = []
        self.has_reported = has_reported

    def on_frame(self, frame: Frame) -> None:
        self.told.append(frame.header)

    def on_output(self, source: str, data: bytes) -> bool:
        self.told.append((source, data))
        return True


class Stage:
    """A worker that is busy, its calls by number, and what it did to its cell."""

    def __init__(self, *calls: int) -> None:
        self.failed: list[str] = []
        self.ended = 0
        self.lines: list[LogLine] = []
        channel = SimpleNamespace(fail=self._fail)
        self.listed: list[object] = []
        self.lapses = 0
        self.worker = SharedWorker(
            "w-1",
            spec("server", serial=True),
            lambda _: None,
            log=self.lines.append,
            on_listed=lambda _, listed: self.listed.append(listed),
        )
        self.worker.on_lapse = self._lapsed
        self.worker.cell = cast("Any", SimpleNamespace(channel=channel, end=self._end))
        self.calls = {number: Listener() for number in calls}
        self.worker.calling.update(cast("Any", self.calls))
        for event in (WorkerEvent.HELLO, WorkerEvent.LEASE):
            self.worker.fire(event)
        self.worker.others = len(calls) - 1

    def _fail(self, error: FrameError) -> None:
        self.failed.append(str(error))

    def _end(self) -> None:
        self.ended += 1

    def _lapsed(self, worker: SharedWorker) -> None:
        self.lapses += 1

    def frame(self, kind: str, payload: bytes = b"", **fields: object) -> None:
        self.worker.on_frame(Frame({"type": kind, **fields}, payload))


async def test_a_frame_is_of_the_call_that_it_names_and_chunks_continue_it() -> None:
    stage = Stage(1, 2)
    for header in ({"type": "result", "seq": 2}, {"type": "chunk"}, {"type": "progress", "seq": 1}):
        stage.worker.on_frame(Frame(header, b""))
    assert stage.calls[2].told == [{"type": "result", "seq": 2}, {"type": "chunk"}]
    assert stage.calls[1].told == [{"type": "progress", "seq": 1}]


@pytest.mark.parametrize("number", [0, 3, -1, True, None, "1", 1.0, [1], {}, 2**70])
async def test_frames_about_no_call_reach_none_and_are_bounded(number: object) -> None:
    stage = Stage(1, 2)
    for count in range(STALE_MAX + 1):
        assert stage.failed == [], count
        stage.worker.on_frame(Frame({"type": "log", "seq": number}, b""))
    assert stage.failed == ["frames about calls that it does not have"]
    assert [call.told for call in stage.calls.values()] == [[], []]


async def test_output_is_of_the_one_call_that_runs_or_else_of_the_server() -> None:
    stage = Stage(1)
    assert stage.worker.on_output("stderr", b"mine")
    assert stage.calls[1].told == [("stderr", b"mine")]
    stage.worker.calling[2] = cast("Any", Listener())
    assert not stage.worker.on_output("stderr", b"of one of\ntwo\xff")
    stage.worker.leave(2)
    stage.worker.calling[1] = cast("Any", Listener(has_reported=True))
    stage.worker.on_output("stdout", b"late")
    assert [(line.source, line.text, line.tool, line.call_id) for line in stage.lines] == [
        ("stderr", "of one of", "server", ""),
        ("stderr", "two\ufffd", "server", ""),
        ("stdout", "late", "server", ""),
    ]


async def test_the_log_of_a_server_that_prints_without_end_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_worker, "LOGGED_BYTES_MAX", 100)
    stage = Stage(1, 2)
    for _ in range(1000):
        stage.worker.on_output("stdout", b"x" * 30 + b"\n")
    assert sum(len(line.text) for line in stage.lines if line.source == "stdout") <= 100
    assert [line.level for line in stage.lines].count("warning") == 1


async def test_a_worker_is_drained_when_what_was_stopped_is_all_that_is_left() -> None:
    stage = Stage(1, 2, 3)
    worker = stage.worker
    worker.report_stopped(1)
    assert stage.ended == 0, "it is not replaced"
    worker.replaced = True
    worker.fire(WorkerEvent.RETIRE)
    worker.report_stopped(2)
    assert stage.ended == 0, "one still runs"
    worker.leave(3)
    worker.others -= 1
    worker.end_if_drained()
    assert stage.ended == 1


async def test_a_list_of_tools_is_no_call_s_and_comes_in_parts() -> None:
    stage = Stage(1)
    stage.frame("listed", b"one")
    stage.frame("listed", b"tw", size=4)
    stage.frame("chunk", b"o,")
    stage.frame("progress", seq=1)
    assert stage.listed == [b"one", b"two,"]
    assert [told["type"] for told in cast("Any", stage.calls[1].told)] == ["progress"]
    assert stage.failed == []


NOTHING: dict[str, object] = {}
BAD: list[tuple[list[tuple[str, bytes, dict[str, object]]], str]] = [
    ([("listed", b"abc", {"size": 2})], "of more than"),
    ([("listed", b"a", {"size": DESCRIPTION_BYTES_MAX + 1})], "of more than"),
    ([("listed", b"a", {"size": -1})], "of more than"),
    ([("listed", b"a", {"size": "1"})], "size of a message 'listed'"),
    ([("listed", b"a", {"size": 3}), ("chunk", b"abc", NOTHING)], "not complete"),
    ([("listed", b"a", {"size": 3}), ("chunk", b"", NOTHING)], "not complete"),
    ([("listed", b"a", {"size": 3}), ("result", b"", {"seq": 1})], "not complete"),
    ([("ended", b"", NOTHING)], "message of a message 'ended'"),
]


@pytest.mark.parametrize(("frames", "why"), BAD)
async def test_a_list_that_breaks_a_rule_ends_the_cell(frames: list[Any], why: str) -> None:
    stage = Stage(1)
    for kind, payload, fields in frames:
        stage.frame(kind, payload, **fields)
    assert len(stage.failed) == 1
    assert why in stage.failed[0]
    assert stage.listed == []


async def test_lists_and_ends_are_bounded_in_a_minute() -> None:
    stage = Stage(1)
    for _ in range(LISTS_MAX // 2):
        stage.frame("listed", b"x")
        stage.frame("ended", message="it ended")
    assert (stage.failed, stage.lapses) == ([], LISTS_MAX // 2)
    stage.frame("listed", b"x")
    assert len(stage.failed) == 1


async def test_only_a_worker_that_may_have_several_calls_says_how_many() -> None:
    stage = Stage(1)
    startup = Startup()
    startup.calls = 7
    stage.worker._take(startup)  # pyright: ignore[reportPrivateUsage]  as its start does
    assert stage.worker.places == 7
    await asyncio.sleep(0)
    for wrong in (0, -1, CALLS_MAX + 1, 10**400, True, "2", 1.5):
        with pytest.raises(MessageError):
            from_worker({"type": "loaded", "calls": wrong})
