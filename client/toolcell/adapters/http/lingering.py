"""An end of a connection that loses no answer while its peer still sends.

A request can be answered before its body is there, as one without a token is. If the socket were closed then, the kernel
would answer the rest of the body with a reset, and a peer that is sending meets the reset and never reads the answer. So
the answer is followed by the end of our direction alone, and what still comes is read and dropped, for a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

LINGER_SECONDS: Final = 5.0
"""For a peer to see the end and close."""
DROPPED_BYTES_MAX: Final = 32 * 2**20
"""Of a body that is being sent; twice the largest that is taken."""


class LingeringTransport(asyncio.Transport):
    """A transport, with `close` in two steps where the peer has not ended its request.

    Args:
        transport: The one of the connection.
        loop: Its loop.
        sends: Whether the peer may still send what belongs to its request.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, sends: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._sends = sends
        self._dropped_bytes = 0
        self._patience: asyncio.TimerHandle | None = None

    @property
    def lingers(self) -> bool:
        """Whether our direction has ended, and what comes is dropped."""
        return self._patience is not None

    def drop(self, data: bytes) -> None:
        """Take what the peer sends after its answer."""
        self._dropped_bytes += len(data)
        if self._dropped_bytes > DROPPED_BYTES_MAX:
            self._transport.abort()

    def lost(self) -> None:
        """Forget the connection, which is gone."""
        if self._patience is not None:
            self._patience.cancel()

    # The transport, as its protocol sees it

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.lingers:
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self.lingers or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._sends():
            self._transport.close()
            return
        self._patience = self._loop.call_later(LINGER_SECONDS, self._transport.abort)
        self._transport.write_eof()  # what is written goes ahead of it
        self._transport.resume_reading()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        if not self.lingers:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
