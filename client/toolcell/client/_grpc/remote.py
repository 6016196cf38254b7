"""A connection to a daemon on another machine: TLS 1.3 with certificates on both sides, and pings.

On a unix socket the kernel tells of the end of a daemon; a line that was cut, and a machine that is stopped, say nothing.
So the daemon is asked several times a second for a sign of life, and any bytes are one. What counts are looks without any, and not
time: where this process itself stands still, what has come meanwhile is read before the next look.
"""

from __future__ import annotations

import asyncio
import ssl

from .rpc import RpcLink
from .tls import TlsTransport

PING_SECONDS = 0.4
SILENT_LOOKS_MAX = 3
"""Looks that find nothing, after which the connection is given up: 1.2 to 1.6 seconds after the last sign."""
CONNECT_SECONDS = 2.0
"""For TCP and TLS; a machine that is stopped takes the connection and no more."""


class RemoteLink(RpcLink):
    """A connection that ends when the other side gives no sign of life."""

    def __init__(self, ticket: str) -> None:
        super().__init__(ticket, "Ticket")
        self._silent_looks = 0
        self._reads = True
        self._look_timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and look from now on."""
        super().connection_made(transport)
        self._look()

    @property
    def certificate(self) -> bytes:
        """What the other side has shown, in DER."""
        return self._transport.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what has come; whatever it is, it is a sign of life."""
        self._silent_looks = 0
        super().buffer_updated(nbytes)

    def read(self, on: bool) -> None:
        """Read on, or not; while nothing is read no sign can come."""
        self._reads = on
        super().read(on)

    def connection_lost(self, exc: Exception | None) -> None:
        """End what has not ended."""
        self._look_timer.cancel()
        if exc is None and self._silent_looks >= SILENT_LOOKS_MAX:
            exc = TimeoutError(f"it has given no sign of life for {PING_SECONDS * SILENT_LOOKS_MAX:g} s")
        super().connection_lost(exc)

    def _look(self) -> None:
        if self._silent_looks >= SILENT_LOOKS_MAX:
            self._transport.abort()
            return
        if self._reads:
            self._silent_looks += 1
        # One ping is enough; a daemon that stood still would find a flood when it goes on.
        if self._silent_looks <= 1:
            self._http2.ping()
            self._write()
        self._look_timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._look)


async def open_remote_link(
    host: str, port: int, context: ssl.SSLContext, name: str, ticket: str
) -> RemoteLink:
    """Connect to the daemon at an address; `close` the connection in the end. Raises OSError.

    Args:
        host: Its host.
        port: Its port.
        context: Our certificate, and who has to have signed the daemon's.
        name: What the daemon's certificate is for.
        ticket: What it wants to see with each RPC.
    """
    link = RemoteLink(ticket)
    async with asyncio.timeout(CONNECT_SECONDS):
        _, tls = await asyncio.get_running_loop().create_connection(
            lambda: TlsTransport(link, context, name), host, port
        )
        try:
            await tls.ready
        except BaseException:
            tls.abort()
            raise
    return link
