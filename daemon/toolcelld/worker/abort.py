"""How an abort reaches the tool's code, and nothing but the tool's code.

The daemon writes a call's number and a reason to the abort channel and has the keeper send a signal.
Its handler runs in the main thread, between two instructions of whatever runs there. In the code of
a synchronous tool it raises `Aborted`; what an asynchronous tool awaits it cancels; our own code that
the tool has called it lets finish first. It does one of these once for each call.
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

__all__ = ["Abortable"]

SEQUENCE: Final = struct.Struct(">Q")


class Abortable:
    """Brings an abort from the channel to the code of the tool that is running, at most once per call."""

    def __init__(self, channel: int) -> None:
        self._channel = socket.socket(fileno=channel)
        self._channel.setblocking(False)
        self._highest_aborted = -1
        self._reason = ""
        self._sequence: int | None = None
        self._inside = False
        self._hold_depth = 0
        self._pending = False
        self._announce: Callable[[str], None] = lambda _: None
        self.delivered = False
        self.cancel: Callable[[], object] | None = None  # how to stop what runs on the loop
        signal.signal(ABORT_SIGNAL, self._on_signal)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def begin(self, sequence: int, announce: Callable[[str], None]) -> bool:
        """From here the call can be aborted; False says that it already was."""
        self.delivered = self._pending = False
        self._announce = announce
        self._sequence = sequence
        if sequence <= self._highest_aborted:
            announce(self._reason)
            return False
        return True

    def end(self) -> None:
        self._inside = False
        self._sequence = None

    def __enter__(self) -> None:
        """Within: the tool's own code runs."""
        self._inside = True
        self._deliver_pending()  # what came since `begin` found nothing to stop yet

    def __exit__(self, *_: object) -> None:
        self._inside = False

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Our own code, called by the tool, runs in here: an abort waits until it is whole."""
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

    @property
    def reason(self) -> str:
        return self._reason

    def _on_signal(self, *_: object) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while message := self._channel.recv(4096):
                (number,) = SEQUENCE.unpack_from(message)
                if number > self._highest_aborted:
                    self._highest_aborted, self._reason = (
                        number,
                        message[SEQUENCE.size :].decode(errors="replace"),
                    )
        self._deliver_pending()

    def _deliver_pending(self) -> None:
        """Deliver the abort of the call that runs, if there is one."""
        if self._sequence is not None and self._sequence <= self._highest_aborted and not self.delivered:
            self._announce(self._reason)
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
            raise Aborted(self._reason)
