"""The output pipes of a cell: output before a call is separated from output of the call."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator

import pytest

from toolcelld.cell.stdio import Source, StdioReader
from toolcelld.output.redaction import Redactor

pytestmark = pytest.mark.anyio

PIPE_BYTES = 1024 * 1024
"""The largest size that a tool can give its pipes."""


def begin_call(printing: StdioReader) -> None:
    """As a worker does with each call."""
    printing.drain()
    printing.tails.clear()


class Taken:
    """One pipe, and the data that was read from it."""

    def __init__(self) -> None:
        self.printing = StdioReader(self.take)
        self.output = self.printing.add("stderr")
        self.bytes = b""

    def take(self, source: Source, data: bytes) -> bool:
        self.bytes += data
        return False


@pytest.fixture
async def taken() -> AsyncIterator[Taken]:
    taken = Taken()
    yield taken
    taken.printing.close()
    os.close(taken.output)


async def test_the_tail_has_only_output_since_the_start_of_the_call(taken: Taken) -> None:
    os.write(taken.output, b"read before\n")
    taken.printing.drain()
    os.write(taken.output, b"still in the pipe\n")
    begin_call(taken.printing)
    assert taken.bytes == b"read before\nstill in the pipe\n"
    os.write(taken.output, b"of the call\n")
    taken.printing.drain()
    assert taken.printing.tail("stderr") == "of the call\n"


async def test_a_call_starts_after_the_data_that_redaction_held_back(taken: Taken) -> None:
    taken.printing.redact(Redactor(["hunter2"]))
    os.write(taken.output, b"hunt")
    begin_call(taken.printing)
    os.write(taken.output, b"er2\n")
    taken.printing.drain()
    assert (taken.bytes, taken.printing.tail("stderr")) == (b"hunter2\n", "er2\n")


async def test_an_enlarged_pipe_is_drained_completely(taken: Taken) -> None:
    fcntl.fcntl(taken.output, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.write(taken.output, b"x" * PIPE_BYTES)
    taken.printing.drain()
    assert len(taken.bytes) == PIPE_BYTES
