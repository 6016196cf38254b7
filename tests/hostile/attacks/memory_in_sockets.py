"""Keeps memory of the kernel in the buffers of TCP connections, which no process's usage includes."""

import contextlib
import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)

CONNECTIONS = 10


@tool
def memory_in_sockets(target: dict[str, Any]) -> str:
    kept = 0
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(CONNECTIONS):
            ends = socket.create_connection(listener.getsockname()), listener.accept()[0]
            held += ends
            for end in ends:
                end.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        kept += end.send(bytes(65536))
    return (
        f"each connection kept {'far too much' if kept > CONNECTIONS * 2 * 2**20 else 'little'}: {kept} bytes"
    )
