"""Sends the daemon sockets that take long to close, which would stop its loop when it closes them."""

import contextlib
import os
import signal
import socket
import struct
from typing import Any

from toolcell import tool

signal.alarm(20)


def lingering() -> socket.socket:
    """A socket whose last close waits until its peer has read everything, which it never does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held = socket.create_connection(listener.getsockname())
        listener.accept()[0].detach()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10))
    held.setblocking(False)
    try:
        while held.send(bytes(65536)):
            pass
    except BlockingIOError:
        held.setblocking(True)
    return held


HELD: list[int] = []  # closed when the process exits, where the kernel does not wait


@tool
def pass_descriptors(target: dict[str, Any]) -> str:
    HELD.append(os.open(os.devnull, os.O_RDONLY))
    with contextlib.suppress(OSError):  # its cell has no network
        HELD.append(lingering().detach())
    passed: list[int] = []
    for number in (3, 4, 5, 6):
        for held in HELD:
            try:
                with socket.socket(fileno=os.dup(number)) as channel:
                    socket.send_fds(channel, [b"x"], [held])
                passed.append(number)
            except OSError:
                continue
    return f"passed by {passed}" if passed else "refused"
