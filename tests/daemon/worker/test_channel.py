"""The worker's end of the protocol: chunked messages, intermediate messages, reports and aborts."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell import Aborted
from toolcell._results.normalise import ImageBlock, LinkBlock, Result, TextBlock
from toolcelld.cell.channel import open_pipe
from toolcelld.protocol.frames import PAYLOAD_BYTES_MAX, Decoder, Frame, FrameError, encode, split
from toolcelld.protocol.messages import MESSAGE_BYTES_MAX, METADATA_BYTES_MAX, ChunkMessage, WithdrawMessage
from toolcelld.sandbox.setup import ABORT_SIGNAL
from toolcelld.worker.abort import HEAD, Abortable
from toolcelld.worker.calling.report import Usage, WorkerReport
from toolcelld.worker.channel import DaemonChannel, UpdateSender

USAGE = Usage(cpu_seconds=0.5, memory_peak_bytes=4096, threads=0)


class Daemon:
    """The daemon's end of a channel."""

    def __init__(self, end: socket.socket, reports: int) -> None:
        self.socket = end
        self.reports = reports
        self._decoder = Decoder()
        self._frames: list[Frame] = []

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def frame(self) -> Frame:
        """Wait for the next frame."""
        while not self._frames:
            ready, _, _ = select.select([self.reports], [], [], 30)
            assert ready, "no frame came"  # a failure and no hang
            data = os.read(self.reports, 65536)
            assert data, "the wire has ended"
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)


@pytest.fixture
def ends() -> Iterator[tuple[Daemon, DaemonChannel]]:
    ours, theirs = socket.socketpair()
    reading, writing = open_pipe()
    with ours, open(reading, "rb"):
        wire = DaemonChannel(theirs.detach(), writing)
        yield Daemon(ours, reading), wire
        wire.close()


def test_a_message_is_joined_from_its_chunks(ends: tuple[Daemon, DaemonChannel]) -> None:
    daemon, wire = ends
    payload = os.urandom(3 * PAYLOAD_BYTES_MAX + 7)
    sender = threading.Thread(target=daemon.send, args=tuple(split({"type": "load"}, payload)))
    sender.start()
    message = wire.receive()
    sender.join()
    assert message == Frame({"type": "load", "size": len(payload)}, payload)


@pytest.mark.parametrize(
    "frames",
    [
        [encode({"type": "load", "size": MESSAGE_BYTES_MAX + 1})],
        [encode({"type": "load", "size": "5"})],
        [encode({"type": "load", "size": 1.5})],
        [encode({"type": "load", "size": None})],
        [encode({"type": "load", "size": 1}, b"12")],
        [encode({"type": "load", "size": 5}, b"12"), encode({"type": "retire"})],
        [encode({"type": "load", "size": 5}, b"12"), encode({"type": "chunk"})],
        [encode({"type": "load", "size": 5}, b"12"), encode({"type": "chunk"}, b"3456")],
    ],
)
def test_a_message_with_a_wrong_size_is_an_error(
    ends: tuple[Daemon, DaemonChannel], frames: list[bytes]
) -> None:
    daemon, wire = ends
    daemon.send(*frames)
    with pytest.raises(FrameError):
        wire.receive()


def test_a_closed_channel_ends_an_incomplete_message(ends: tuple[Daemon, DaemonChannel]) -> None:
    daemon, wire = ends
    daemon.send(encode({"type": "load", "size": 5}, b"12"))
    daemon.socket.shutdown(socket.SHUT_WR)
    assert wire.receive() is None
    assert wire.receive() is None


# Telling


def test_an_update_to_a_full_socket_does_not_block_and_the_newest_is_sent(
    ends: tuple[Daemon, DaemonChannel],
) -> None:
    daemon, wire = ends
    threads = threading.active_count()
    updates = UpdateSender(wire, 7)
    for number in range(200):  # thirty times what the socket takes
        updates.tell("update", {}, json.dumps(number).encode() + b" " * 40_000)
    seen: list[int] = []
    while not seen or seen[-1] != 199:
        header, payload = daemon.frame()
        assert (header["type"], header["seq"]) == ("update", 7)
        seen.append(json.loads(payload))
    assert seen == sorted(set(seen))
    updates.finish()
    assert threading.active_count() == threads


def test_a_partly_sent_frame_is_completed_without_another_message(ends: tuple[Daemon, DaemonChannel]) -> None:
    daemon, wire = ends
    wire.send(ChunkMessage(), bytes(PAYLOAD_BYTES_MAX // 2))
    updates = UpdateSender(wire, 1)
    # More than is left in the pipe. Whether it is whole is not asked, as the thread that sends the rest may have begun.
    assert fcntl.fcntl(daemon.reports, fcntl.F_GETPIPE_SZ) < PAYLOAD_BYTES_MAX // 2 + PAYLOAD_BYTES_MAX
    updates.tell("update", {}, b" " * PAYLOAD_BYTES_MAX)
    assert daemon.frame().header["type"] == "chunk"
    assert len(daemon.frame().payload) == PAYLOAD_BYTES_MAX
    updates.finish()


def test_a_result_is_sent_after_all_pending_messages(ends: tuple[Daemon, DaemonChannel]) -> None:
    daemon, wire = ends
    updates = UpdateSender(wire, 1)
    for number in range(5):
        updates.tell("log", {"level": "info", "text": str(number)})
        updates.tell("metadata", {"title": str(number)}, json.dumps({str(number): number}).encode())
    updates.finish()
    wire.send(WithdrawMessage(seq=1, ask=1))
    texts: list[str] = []
    metadata: dict[str, Any] = {}
    while (frame := daemon.frame()).header["type"] != "withdraw":
        if frame.header["type"] == "log":
            texts += [record["text"] for record in json.loads(frame.payload)]
        else:
            metadata.update(json.loads(frame.payload))
    assert texts == ["0", "1", "2", "3", "4"]
    assert metadata == {"title": "4", "0": 0, "1": 1, "2": 2, "3": 3, "4": 4}


@given(st.sampled_from(["x", "é", "😀", '"', "\x00"]), st.integers(1, 16 * 1024), st.integers(1, 40))
def test_a_log_of_any_characters_fits_its_frame_and_losses_are_counted(
    character: str, length: int, count: int
) -> None:
    ours, theirs = socket.socketpair()
    reading, writing = open_pipe()
    with ours, open(reading, "rb"):
        wire = DaemonChannel(theirs.detach(), writing)
        updates = UpdateSender(wire, 1)
        wire.send(ChunkMessage(), bytes(PAYLOAD_BYTES_MAX // 2))  # nothing is read until all is told
        for _ in range(count):
            updates.tell("log", {"level": "info", "text": character * length})
        daemon = Daemon(ours, reading)
        reader = threading.Thread(target=updates.finish)
        reader.start()
        arrived = lost = 0
        while arrived + lost < count:
            header, payload = daemon.frame()
            if header["type"] == "log":
                arrived += len(json.loads(payload))
                lost += header["lost"]
        reader.join()
        assert arrived + lost == count
        wire.close()


def test_metadata_that_grows_too_large_is_dropped_with_a_warning(ends: tuple[Daemon, DaemonChannel]) -> None:
    daemon, wire = ends
    updates = UpdateSender(wire, 1)
    updates.tell("metadata", {}, json.dumps({"a": "x" * METADATA_BYTES_MAX}).encode())
    header, payload = daemon.frame()
    assert header["type"] == "log"
    assert json.loads(payload)[0]["level"] == "warning"
    updates.finish()


# Endings


def put_together(frames: list[bytes]) -> tuple[dict[str, Any], bytes]:
    first, *rest = [frame for data in frames for frame in Decoder().feed(data)]
    payload = b"".join(frame.payload for frame in (first, *rest))
    assert first.header.get("size", len(payload)) == len(payload)
    return first.header, payload


TEXTS = st.text(max_size=20) | st.sampled_from(["x" * 300_000, "é" * 200_000, "a\ud800b", "\udfff" * 100_000])
BLOCKS = st.lists(
    st.builds(TextBlock, TEXTS)
    | st.builds(ImageBlock, st.binary(max_size=50), st.just("image/png"))
    | st.builds(LinkBlock, st.just("file:///a"), st.just("a"), st.just("")),
    max_size=5,
)


@given(BLOCKS, st.none() | st.just(b'{"a":1}'), st.none() | st.just(b"{}"))
def test_a_report_has_the_length_of_every_part(
    blocks: list[TextBlock | ImageBlock | LinkBlock], details: bytes | None, metadata: bytes | None
) -> None:
    ending = WorkerReport("ok", Result(tuple(blocks), details, None, metadata))
    header, payload = put_together(list(ending.frames(1, USAGE)))
    lengths = [block.get("bytes", 0) for block in header["blocks"]]
    parts = [*lengths, header.get("details", 0), header.get("metadata", 0)]
    assert sum(parts) == len(payload)
    start = 0
    for block, length in zip(blocks, lengths, strict=True):
        part = payload[start : start + length]
        start += length
        if isinstance(block, TextBlock):
            assert part == block.text.encode(errors="replace")
        elif isinstance(block, ImageBlock):
            assert part == block.data
    assert payload[start:] == (details or b"") + (metadata or b"")


def test_a_result_whose_header_is_too_large_is_an_error_of_the_tool() -> None:
    links = tuple(LinkBlock(f"https://example.org/{'x' * 4000}/{number}", "n", "") for number in range(100))
    ending = WorkerReport("ok", Result(links))
    header, payload = put_together(list(ending.frames(3, USAGE)))
    assert (header["kind"], header["seq"], header["cpu"]) == ("tool_error", 3, 0.5)
    assert payload.startswith(b"The tool's result has too many parts")


def test_an_aborted_call_is_reported_as_aborted_for_any_result() -> None:
    links = tuple(LinkBlock("x" * 4000, "", "") for _ in range(100))
    header, _ = put_together(list(WorkerReport("aborted", Result(links)).frames(1, USAGE)))
    assert header["kind"] == "aborted"


# Aborts


@pytest.fixture
def abortable() -> Iterator[tuple[socket.socket, Abortable]]:
    ours, theirs = socket.socketpair()
    before = signal.getsignal(ABORT_SIGNAL)
    with ours:
        abortable = Abortable(theirs.detach())
        yield ours, abortable
        abortable.close()
    signal.signal(ABORT_SIGNAL, before)


def abort(daemon: socket.socket, number: int, reason: str = "by you") -> None:
    """Abort as the daemon and the keeper do; the signal is delivered before this returns."""
    daemon.send(HEAD.pack(number, len(reason)) + reason.encode())
    signal.raise_signal(ABORT_SIGNAL)


def test_an_abort_that_arrives_in_parts_counts_when_it_is_whole(
    abortable: tuple[socket.socket, Abortable],
) -> None:
    daemon, worker = abortable
    message = HEAD.pack(1, 6) + b"by you" + HEAD.pack(3, 0)
    for part in (message[:5], message[5:12], message[12:15]):
        daemon.send(part)
        signal.raise_signal(ABORT_SIGNAL)
        assert not worker.reason
    daemon.send(message[15:])
    signal.raise_signal(ABORT_SIGNAL)
    assert not worker.begin(3, lambda _: None)
    assert worker.begin(4, lambda _: None)


def test_an_abort_raises_in_the_tools_code_once(abortable: tuple[socket.socket, Abortable]) -> None:
    daemon, worker = abortable
    told: list[str] = []
    assert worker.begin(1, told.append)
    with pytest.raises(Aborted, match="by you"), worker:
        abort(daemon, 1)
    abort(daemon, 1)
    worker.end()
    assert worker.delivered
    assert told == ["by you"]


def test_an_abort_before_its_call_ends_it_at_once(abortable: tuple[socket.socket, Abortable]) -> None:
    daemon, worker = abortable
    abort(daemon, 2)
    assert not worker.begin(1, lambda _: None)
    assert not worker.begin(2, lambda _: None)
    assert worker.begin(3, lambda _: None)
    worker.end()


def test_an_abort_between_begin_and_the_tools_first_line_is_not_lost(
    abortable: tuple[socket.socket, Abortable],
) -> None:
    daemon, worker = abortable
    ran = False
    assert worker.begin(1, lambda _: None)
    abort(daemon, 1)
    with pytest.raises(Aborted), worker:
        ran = True
    worker.end()
    assert not ran


def test_an_abort_is_delayed_until_our_own_code_has_finished(
    abortable: tuple[socket.socket, Abortable],
) -> None:
    daemon, worker = abortable
    steps: list[str] = []
    assert worker.begin(1, lambda _: None)

    def tool() -> None:
        with worker.held():
            abort(daemon, 1)
            steps.append("whole")
        steps.append("never")

    with pytest.raises(Aborted), worker:
        tool()
    worker.end()
    assert steps == ["whole"]


def test_an_abort_of_an_ended_call_has_no_effect(abortable: tuple[socket.socket, Abortable]) -> None:
    daemon, worker = abortable
    assert worker.begin(1, lambda _: None)
    worker.end()
    assert worker.begin(2, lambda _: None)
    with worker:
        abort(daemon, 1)
    worker.end()
    assert not worker.delivered
