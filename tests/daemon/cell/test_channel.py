"""The daemon's end of the protocol: a worker's last frames are received, and none after an error."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from toolcelld.cell.channel import SO_PASSRIGHTS, WorkerChannel, refuse_descriptors
from toolcelld.output.redaction import Redactor
from toolcelld.protocol.frames import PAYLOAD_BYTES_MAX, Frame, FrameError, encode
from toolcelld.protocol.messages import RetireMessage

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", autouse=True)
def signals_of_libuv() -> None:
    """Run uvloop once: its first loop opens a pipe that stays open."""
    uvloop.new_event_loop().close()


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both event loops, as the daemon uses uvloop where it is installed."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Worker:
    """The worker's end: it sends into a pipe."""

    def __init__(self, connection: socket.socket, reports: int) -> None:
        self._socket = connection
        self._reports = reports

    def sendall(self, data: bytes) -> None:
        os.write(self._reports, data)

    def close(self) -> None:
        self._socket.close()
        if self._reports >= 0:
            os.close(self._reports)
            self._reports = -1


class Ear:
    """The frames and errors that are received, and the worker's end."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.frames: list[Frame] = []
        self.errors: list[FrameError] = []
        self.on_frame: Callable[[Frame], None] = self.frames.append
        self.wire = WorkerChannel(self.receive, self.errors.append)

    def receive(self, frame: Frame) -> None:
        self.on_frame(frame)

    @property
    def heard(self) -> list[str]:
        return [frame.header["type"] for frame in self.frames]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.frames) + len(self.errors) < count:
                await asyncio.sleep(0)


@asynccontextmanager
async def ear() -> AsyncGenerator[Ear]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    reading, writing = os.pipe()
    worker = Worker(theirs, writing)
    ear = Ear(worker)
    ear.wire.open_reports(reading)
    ours.shutdown(socket.SHUT_RD)
    await ear.wire.open(ours)
    try:
        yield ear
    finally:
        ear.wire.close()
        worker.close()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_last_frames_are_received_if_a_message_is_sent_too_late() -> None:
    async with ear() as it:
        it.worker.sendall(encode({"type": "last"}, b"words"))
        it.worker.close()
        it.wire.send(RetireMessage())  # before the loop reads
        await turns()
        assert it.frames == [({"type": "last"}, b"words")]


async def test_last_frames_are_received_if_a_message_is_never_read() -> None:
    async with ear() as it:
        it.wire.send(RetireMessage())
        it.worker.sendall(encode({"type": "last"}))
        it.worker.close()  # with an unread message, so the kernel reports a reset
        await it.until(1)
        assert it.heard == ["last"]


async def test_last_frames_are_received_while_reading_is_paused() -> None:
    async with ear() as it:
        it.wire.pause()
        it.worker.sendall(encode({"type": "last"}))
        it.worker.close()
        it.wire.send(RetireMessage())
        it.wire.read_remaining()  # before the loop handles the broken connection
        await turns()
        assert it.heard == ["last"]


async def test_a_paused_channel_receives_nothing_until_it_is_resumed() -> None:
    async with ear() as it:
        it.wire.pause()
        it.worker.sendall(encode({"type": "one"}))
        await turns()
        assert it.heard == []
        it.wire.resume()
        await it.until(1)
        assert it.heard == ["one"]


async def test_nothing_is_received_after_an_invalid_frame() -> None:
    async with ear() as it:
        it.worker.sendall(encode({"type": "one"}))
        await it.until(1)
        it.worker.sendall(b"\xff" * 8)
        await it.until(2)
        it.worker.sendall(encode({"type": "two"}))
        it.wire.read_remaining()
        await turns()
        assert (it.heard, len(it.errors)) == (["one"], 1)


async def test_an_error_that_quotes_a_secret_is_redacted() -> None:
    async with ear() as it:
        it.wire.redact(Redactor(["hunter2"]))
        it.wire.fail(FrameError("hunter2 is no frame"))
        assert [str(error) for error in it.errors] == ["******* is no frame"]


async def test_a_closed_channel_drops_messages_and_receives_nothing() -> None:
    async with ear() as it:
        it.worker.sendall(encode({"type": "one"}))
        it.wire.close()
        it.wire.send(RetireMessage(), b" " * (9 * PAYLOAD_BYTES_MAX))
        it.wire.pause()
        it.wire.resume()
        it.wire.read_remaining()
        await turns()
        assert it.heard == []


async def test_a_long_message_to_a_worker_that_has_exited_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ear() as it:
        it.worker.close()
        it.wire.send(RetireMessage(), b" " * (9 * PAYLOAD_BYTES_MAX))
        await turns()
        assert not caplog.records


async def test_a_channel_that_is_held_passes_on_nothing_and_loses_nothing() -> None:
    async with ear() as it:

        def on_frame(frame: Frame) -> None:
            it.frames.append(frame)
            if frame.header["type"] == "hold":
                it.wire.hold()

        it.on_frame = on_frame
        it.worker.sendall(b"".join(encode({"type": type_}) for type_ in ("a", "hold", "b", "hold", "c")))
        await it.until(2)
        it.worker.sendall(encode({"type": "d"}))
        await turns()
        assert it.heard == ["a", "hold"]
        it.wire.resume()  # of another pause
        await turns()
        assert it.heard == ["a", "hold"]
        it.wire.release()
        assert it.heard == ["a", "hold", "b", "hold"]
        it.wire.release()
        await it.until(6)
        assert it.heard == ["a", "hold", "b", "hold", "c", "d"]
        it.worker.close()


async def test_a_worker_that_has_ended_is_held_no_more() -> None:
    async with ear() as it:
        it.wire.hold()
        it.worker.sendall(encode({"type": "a"}) + encode({"type": "b"}))
        await turns()
        assert it.heard == []
        it.worker.close()
        it.wire.read_remaining()
        assert it.heard == ["a", "b"]


def test_an_end_that_refuses_descriptors_gets_plain_messages_only() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        try:
            ours.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS)
        except OSError:
            pytest.skip("the kernel cannot refuse them")
        socket.send_fds(theirs, [b"before"], [0])
        for number in socket.recv_fds(ours, 10, 1)[1]:
            os.close(number)
        refuse_descriptors(ours)
        with pytest.raises(PermissionError):
            socket.send_fds(theirs, [b"after"], [0])
        theirs.send(b"plain")
        assert ours.recv(10) == b"plain"
