"""Our end of a worker's protocol: nothing the worker said is lost with it, and nothing is heard that should not be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import uvloop

from toolcelld.cell.channel import WorkerChannel
from toolcelld.output.redaction import Redactor
from toolcelld.protocol.frames import PAYLOAD_BYTES_MAX, Frame, FrameError, encode
from toolcelld.protocol.messages import RetireMessage

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", autouse=True)
def signals_of_libuv() -> None:
    """Its first loop opens a pipe that stays, and no test leaves one behind."""
    uvloop.new_event_loop().close()


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both loops: the daemon runs on uvloop where there is one."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Ear:
    """Who listens, and the worker's end."""

    def __init__(self, worker: socket.socket) -> None:
        self.worker = worker
        self.frames: list[Frame] = []
        self.errors: list[FrameError] = []
        self.wire = WorkerChannel(self.frames.append, self.errors.append)

    @property
    def heard(self) -> list[str]:
        return [frame.header["type"] for frame in self.frames]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.frames) + len(self.errors) < count:
                await asyncio.sleep(0)


@asynccontextmanager
async def ear() -> AsyncGenerator[Ear]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    ear = Ear(theirs)
    await ear.wire.open(ours)
    try:
        yield ear
    finally:
        ear.wire.close()
        theirs.close()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_last_words_are_heard_where_a_message_comes_too_late() -> None:
    async with ear() as it:
        it.worker.sendall(encode({"type": "last"}, b"words"))
        it.worker.close()
        it.wire.send(RetireMessage())  # before the loop came to read
        await turns()
        assert it.frames == [({"type": "last"}, b"words")]


async def test_last_words_are_heard_where_a_message_is_never_read() -> None:
    async with ear() as it:
        it.wire.send(RetireMessage())
        it.worker.sendall(encode({"type": "last"}))
        it.worker.close()  # with that message in it: the kernel calls that a reset
        await it.until(1)
        assert it.heard == ["last"]


async def test_last_words_are_heard_by_who_had_paused() -> None:
    async with ear() as it:
        it.wire.pause()
        it.worker.sendall(encode({"type": "last"}))
        it.worker.close()
        it.wire.send(RetireMessage())
        it.wire.read_remaining()  # the end, before the loop comes to the broken connection
        await turns()
        assert it.heard == ["last"]


async def test_who_pauses_hears_nothing_until_it_goes_on() -> None:
    async with ear() as it:
        it.wire.pause()
        it.worker.sendall(encode({"type": "one"}))
        await turns()
        assert it.heard == []
        it.wire.resume()
        await it.until(1)
        assert it.heard == ["one"]


async def test_nothing_is_heard_behind_what_is_no_frame() -> None:
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
        it.wire.break_off(FrameError("hunter2 is no frame"))
        assert [str(error) for error in it.errors] == ["******* is no frame"]


async def test_a_closed_wire_takes_messages_silently_and_hears_nothing() -> None:
    async with ear() as it:
        it.worker.sendall(encode({"type": "one"}))
        it.wire.close()
        it.wire.send(RetireMessage(), b" " * (9 * PAYLOAD_BYTES_MAX))
        it.wire.pause()
        it.wire.resume()
        it.wire.read_remaining()
        await turns()
        assert it.heard == []


async def test_a_long_message_to_who_is_gone_is_not_complained_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ear() as it:
        it.worker.close()
        it.wire.send(RetireMessage(), b" " * (9 * PAYLOAD_BYTES_MAX))
        await turns()
        assert not caplog.records
