"""What a template does with the sockets and pipes that it shares with the processes of its calls."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from toolcelld.worker.template.descriptors import FIXED, LEVEL, SharedDescriptors


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_the_rest_of_a_message_that_a_call_read_in_part_is_dropped(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    shared = SharedDescriptors((ours.fileno(),))
    theirs.sendall(b"an answer to a call")
    assert ours.recv(3) == b"an "
    assert shared.reset()
    theirs.sendall(b"the next call")
    assert ours.recv(100) == b"the next call"


def test_a_socket_whose_other_end_is_closed_ends_the_cell(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    shared = SharedDescriptors((ours.fileno(),))
    assert shared.reset()
    theirs.close()
    assert not shared.reset()


@pytest.mark.parametrize("option", FIXED)
def test_an_option_that_is_not_compared_cannot_be_set(
    pair: tuple[socket.socket, socket.socket], option: int
) -> None:
    for value in (0, 1, 2**31 - 1):
        with pytest.raises(OSError) as refused:
            pair[0].setsockopt(LEVEL, option, value)
        assert refused.value.errno == errno.ENOPROTOOPT


def test_what_is_in_a_pipe_is_the_daemons_to_read() -> None:
    reading, writing = os.pipe()
    shared = SharedDescriptors((writing,))
    os.write(writing, b"output")
    assert shared.reset()
    assert os.read(reading, 100) == b"output"
    os.close(reading)
    os.close(writing)
