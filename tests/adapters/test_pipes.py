"""Lines that are taken in the turn of the loop that reads them: which ones, and that all others are read."""

from __future__ import annotations

import asyncio

import pytest

from toolcell.adapters.pipes import (
    LineTooLong,
    Pipes,
    _Input,  # pyright: ignore[reportPrivateUsage]  # both without the pipe
    _SingleLines,  # pyright: ignore[reportPrivateUsage]
)

pytestmark = pytest.mark.anyio


class HostEnd(Pipes):
    """The input of pipes, written to here as their transport would."""

    def __init__(self) -> None:
        super().__init__("a host")
        self._reader = _Input()
        self._input = _SingleLines(self._reader)
        self._ended = self._within = False
        self.offer(self.take)
        self.taken: list[bytes] = []
        self.refused: list[bytes] = []

    def say(self, data: bytes) -> None:
        """Have this come in by one read."""
        self._input.data_received(data)

    def take(self, line: bytes) -> bool:
        """Take the lines that begin with a call."""
        (self.taken if line.startswith(b"call") else self.refused).append(line)
        return line.startswith(b"call")


@pytest.fixture(name="host")
async def _host() -> HostEnd:
    return HostEnd()


async def reading(host: HostEnd) -> asyncio.Task[bytes]:
    """A read that waits."""
    read = asyncio.create_task(host.read())
    await asyncio.sleep(0)
    return read


async def test_a_line_that_comes_while_a_read_waits_is_taken_and_not_read(host: HostEnd) -> None:
    read = await reading(host)
    host.say(b"call 1\n")
    host.say(b"call 2\n")
    host.say(b"another\n")
    assert await read == b"another\n"
    assert host.taken == [b"call 1\n", b"call 2\n"]
    assert host.refused == [b"another\n"]


async def test_a_line_that_comes_while_none_waits_is_read_in_its_place(host: HostEnd) -> None:
    host.say(b"call 1\n")
    assert await host.read() == b"call 1\n"
    read = await reading(host)
    host.say(b"another\n")
    host.say(b"call 2\n")  # the other one was not dealt with
    assert [await read, await host.read()] == [b"another\n", b"call 2\n"]
    assert host.taken == []


async def test_the_rest_of_a_line_is_no_line(host: HostEnd) -> None:
    read = await reading(host)
    host.say(b"one and a ")
    host.say(b"call\n")
    assert await read == b"one and a call\n"
    host.say(b"two\nthe rest is a ")
    assert await host.read() == b"two\n"
    read = await reading(host)
    host.say(b"call\n")
    assert await read == b"the rest is a call\n"
    assert host.taken == host.refused == []


async def test_several_lines_at_once_are_read(host: HostEnd) -> None:
    read = await reading(host)
    host.say(b"call 1\ncall 2\n")
    assert [await read, await host.read()] == [b"call 1\n", b"call 2\n"]
    assert host.taken == []


async def test_the_rest_of_a_line_that_is_too_long_is_no_line(
    host: HostEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host._reader, "_limit", 8)  # pyright: ignore[reportPrivateUsage]
    read = await reading(host)
    host.say(b"x" * 20)
    with pytest.raises(LineTooLong):
        await read
    read = await reading(host)
    host.say(b"call 1\n")
    host.say(b"call 2\n")
    assert await read == b"call 2\n"
    assert host.taken == []


async def test_what_taking_a_line_raises_the_read_raises(host: HostEnd) -> None:
    def fails(line: bytes) -> bool:
        raise ValueError("a bug")

    host.offer(fails)
    read = await reading(host)
    host.say(b"call 1\n")
    with pytest.raises(ValueError, match="a bug"):
        await read


async def test_a_read_that_was_cancelled_does_not_wait(host: HostEnd) -> None:
    read = await reading(host)
    read.cancel()
    await asyncio.wait({read})
    host.say(b"call 1\n")
    assert await host.read() == b"call 1\n"
    assert host.taken == []
