"""Receives the sockets that a cell opens in its own network, before any code of the user runs in it.

Our own code in the cell opens them (`sandbox.own_network`) and closes its end before it loads the tool file; the daemon
closes its end when that has happened. So no tool can send a descriptor to the daemon.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from toolcelld.sandbox.policy import HANDOVER_BATCH_MAX

MESSAGE_BYTES_MAX: Final = 64


class Handover:
    """The daemon's end of the channel.

    Args:
        end: Owned from now on; it does not block.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._loop = asyncio.get_running_loop()

    def receive(self, on_socket: Callable[[socket.socket], None]) -> None:
        """Receive sockets until the cell closes its end.

        Args:
            on_socket: Called with each socket, which it owns.
        """
        self._loop.add_reader(self._end, self._on_readable, on_socket)

    def close(self) -> None:
        """Receive nothing more. Safe to call twice."""
        if self._end.fileno() != -1:
            self._loop.remove_reader(self._end)
            self._end.close()

    def _on_readable(self, on_socket: Callable[[socket.socket], None]) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._end, MESSAGE_BYTES_MAX, HANDOVER_BATCH_MAX)
        except BlockingIOError:
            return
        except OSError:
            message, descriptors = b"", []
        for number in descriptors:
            on_socket(socket.socket(fileno=number))
        if not message:
            self.close()
