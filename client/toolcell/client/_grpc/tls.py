"""TLS between a connection and the protocol on it.

asyncio's does the same in more steps: it reads each record twice, and counts what waits in buffers that an RPC's messages never
fill. That was a third of what a call over TLS takes longer in its client.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, cast


class TlsTransport(asyncio.BufferedProtocol):
    """The client's end, a protocol to asyncio's transport and the transport of a protocol.

    Args:
        protocol: What speaks on it. It is told of the connection when the certificates have been checked.
        context: Ours, and who has to have signed the other's.
        name: What the other's certificate is for.
    """

    def __init__(self, protocol: asyncio.BufferedProtocol, context: ssl.SSLContext, name: str) -> None:
        self._protocol = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._transport: asyncio.Transport
        self._fault: Exception | None = None  # of the other side's records
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the certificates have been checked; or why they, or the connection, were not good."""

    # Of the protocol

    def write(self, data: bytes) -> None:
        """Send bytes."""
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]
        self._flush()

    def close(self) -> None:
        """Say that this is the end, and end the connection when all is sent."""
        if not self.is_closing():
            with suppress(ssl.SSLError):  # it would wait for the other side to say the same
                self._tls.unwrap()
            self._flush()
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the connection ends, or has ended."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Read no more; what has been read is handed on."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for the kernel."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection, as `ssl_object`."""
        return self._tls if name == "ssl_object" else self._transport.get_extra_info(name, default)

    # Of the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self._shake()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to: the protocol's own, as records are copied before what is in them is written there."""
        return cast("memoryview", self._protocol.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what is in the records that have come."""
        self._incoming.write(self.get_buffer(nbytes)[:nbytes])
        if not self.ready.done():
            self._shake()
        if self.ready.done() and not self.ready.cancelled() and self.ready.exception() is None:
            self._read()

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        if self.ready.done():
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """It takes more again."""
        if self.ready.done():
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on that it has ended, and why."""
        exc = self._fault or exc
        if not self.ready.done():
            self.ready.set_exception(exc or ConnectionResetError("it has closed the connection"))
        elif not self.ready.cancelled() and self.ready.exception() is None:
            self._protocol.connection_lost(exc)

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._flush()
            self.ready.set_result(None)
            self._protocol.connection_made(cast("asyncio.Transport", self))

    def _read(self) -> None:
        try:
            while self._incoming.pending or self._tls.pending():
                view = self.get_buffer(-1)
                count = cast("int", self._tls.read(len(view), cast("bytearray", view)))
                if not count:
                    self.close()
                    return
                self._protocol.buffer_updated(count)
        except ssl.SSLWantReadError:
            pass  # the rest of a record is to come
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._outgoing.pending:  # an answer of the layer's own
            self._flush()

    def _fail(self, error: ssl.SSLError) -> None:
        """End the connection, and tell the other side why."""
        self._fault = error
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._transport.write(data)
