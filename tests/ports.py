"""Ports of loopback for tests: one that nothing listens on, and one for a server that binds it itself.

The kernel hands out the ports of its range (32768 to 60999) to every connection and every bind to port 0, so one of those
that was free a moment ago may be taken. What is given here is either held until the end, or outside of that range.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["port_to_bind", "silent_port"]

FIRST: Final = 10_000
BLOCKS: Final = 400
BLOCK_PORTS: Final = 50
"""Each process of tests begins in a block of its own; together they end below the range of the kernel."""


def _ports() -> Iterator[int]:
    begin = os.getpid() % BLOCKS * BLOCK_PORTS
    return (FIRST + (begin + n) % (BLOCKS * BLOCK_PORTS) for n in itertools.count())


_NEXT: Final = _ports()


@contextmanager
def silent_port() -> Generator[int]:
    """Give a port that refuses connections, and that nobody else can listen on until the end of the block."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def port_to_bind() -> int:
    """Return a port for a server that cannot be told to take any: free on all addresses, and given once."""
    for port in _NEXT:
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("0.0.0.0", port))  # noqa: S104  # so that it is free on each of them
            except OSError:
                continue
        return port
    raise AssertionError("the ports never end")
