"""Interrupts the tool's code when its call is aborted, without interrupting our own code.

The daemon writes a call's number and a reason to the abort channel and has the keeper send a signal.
The handler runs in the main thread, between two bytecode instructions. It raises `Aborted` in the code
of a synchronous tool, and cancels the task of an asynchronous one. Our own code, called by the tool,
finishes first. An abort is delivered at most once per call.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import threading
from collections.abc import Callable, Generator
from typing import Final

from toolcell import Aborted
from toolcelld.sandbox.setup import ABORT_SIGNAL

HEAD: Final = struct.Struct(">QH")
"""Of a message: the number of the call, and the length of the reason that follows."""


class Abortable:
    """Delivers aborts from the channel to the running tool, at most once per call.

    Args:
        channel: The descriptor of the worker's end of the abort channel.
    """

    def __init__(self, channel: int) -> None:
        self._channel = socket.socket(fileno=channel)
        self._channel.setblocking(False)
        self._received = b""
        self._highest_aborted = -1
        self.reason = ""  # of the last abort
        self._sequence: int | None = None
        self._inside = False
        self._hold_depth = 0
        self._pending = False
        self._announce: Callable[[str], None] = lambda _: None
        self.delivered = False
        self.cancel: Callable[[], object] | None = None  # cancels the task that runs on the loop
        self.listen()

    def listen(self) -> None:
        """Handle the signal of an abort in this process."""
        signal.signal(ABORT_SIGNAL, self._on_signal)

    def ignore_signals(self) -> None:
        """Interrupt nothing from now on: aborts are read by `received`."""
        signal.signal(ABORT_SIGNAL, self._on_ignored)

    def fileno(self) -> int:
        """The descriptor of the channel of aborts."""
        return self._channel.fileno()

    def close(self) -> None:
        self._channel.close()

    def begin(self, sequence: int, announce: Callable[[str], None]) -> bool:
        """Make a call abortable, and return False if it has been aborted already.

        Args:
            sequence: The call's number.
            announce: Called with the reason when the call is aborted.
        """
        self.delivered = self._pending = False
        self._announce = announce
        self._sequence = sequence
        if sequence <= self._highest_aborted:
            announce(self.reason)
            return False
        return True

    def end(self) -> None:
        """End the call: a later abort of it is ignored."""
        self._inside = False
        self._sequence = None

    def __enter__(self) -> None:
        """Enter the tool's own code, where an abort may raise."""
        self._inside = True
        self._deliver_pending()  # an abort since `begin` had nothing to interrupt

    def __exit__(self, *_: object) -> None:
        self._inside = False

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Delay an abort until this block of our own code, called by the tool, has finished."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._hold_depth += 1
        try:
            yield
        finally:
            self._hold_depth -= 1
            if self._pending and not self._hold_depth:
                self._pending = False
                self._deliver()

    def received(self) -> Generator[tuple[int, str]]:
        """Yield the aborts that have come: the number of each call, and the reason."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while received := self._channel.recv(4096):
                self._received += received
        while len(self._received) >= HEAD.size:
            number, length = HEAD.unpack_from(self._received)
            end = HEAD.size + length
            if len(self._received) < end:
                break
            reason, self._received = self._received[HEAD.size : end], self._received[end:]
            yield number, reason.decode(errors="replace")

    def _on_signal(self, *_: object) -> None:
        for number, reason in self.received():
            if number > self._highest_aborted:
                self._highest_aborted, self.reason = number, reason
        self._deliver_pending()

    def _on_ignored(self, *_: object) -> None:
        """Nothing: ignoring the signal itself would be inherited by what the process starts."""

    def _deliver_pending(self) -> None:
        """Deliver the abort of the running call, if there is one."""
        if self._sequence is not None and self._sequence <= self._highest_aborted and not self.delivered:
            self._announce(self.reason)
            self._deliver()

    def _deliver(self) -> None:
        if self.cancel is not None:
            self.delivered = True
            self.cancel()
        elif self._hold_depth:
            self._pending = True
        elif self._inside:
            self._inside = False
            self.delivered = True
            raise Aborted(self.reason)
