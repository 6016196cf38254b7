"""RPCs on one connection to the daemon: `http2.Http2Connection` on a transport of asyncio.

grpcio is not used. Its C core hands each message through threads of its own and wakes the loop for each step, which is
half of the client's processor time in a warm call; here a message is handled in the turn of the loop that reads it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import cast

from .http2 import CANCELLED, Http2Connection, Message, Status

UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""What may wait for a daemon that does not read: more than the windows of any RPC. Beyond it the connection is dropped, as
answers to PING would grow without an end."""
CLOSE_SECONDS = 1.0
"""For what is still to be sent; a daemon that reads takes no time."""
READ_BYTES = 256 * 1024
"""Of one read: as much as a socket holds."""


class _ReadBuffer(threading.local):
    """What the connections of one thread read into, as each hands on what it has read before another reads.

    A transport that has to make an object for each read makes it as long as the longest, which takes three system calls.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))


_buffer = _ReadBuffer()


class Rpc:
    """One RPC, begun by `RpcLink.begin`.

    Attributes:
        stream: The number of its stream.
        on_message: Called with each message, in the turn of the loop that reads it. An exception of it ends the RPC.
        blocked: Whether what is sent now waits for what was sent before.
        on_writable: Called when that has changed to no.
        ended: How the RPC ended; or the exception of a callback.
    """

    def __init__(self, link: RpcLink, stream: int, on_message: Callable[[bytes], None]) -> None:
        self.on_message = on_message
        self.on_writable: Callable[[], None] | None = None
        self.ended: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self.stream = stream
        self.blocked = False
        self._link = link

    def send(self, message: bytes) -> None:
        """Send a message. Has no effect once the RPC has ended."""
        self._link.send(self, message)

    def send_last(self, message: bytes) -> None:
        """Send a message that none follows."""
        self._link.send(self, message, last=True)

    def cancel(self) -> None:
        """End the RPC. Has no effect once it has ended."""
        self.end(Status(CANCELLED, "Cancelled."))
        self._link.forget(self.stream)

    def end(self, status: Status) -> None:
        """Take note that the RPC has ended."""
        if not self.ended.done():
            self.ended.set_result(status)

    def fail(self, error: BaseException) -> None:
        """End the RPC by an exception of ours."""
        if not self.ended.done():
            self.ended.set_exception(error)
        self._link.forget(self.stream)


class RpcLink(asyncio.BufferedProtocol):
    """A connection to a daemon and its RPCs, each of which shows the token in its scheme."""

    def __init__(self, token: str, scheme: str = "Bearer") -> None:
        self._http2 = Http2Connection(token, scheme)
        self._rpcs: dict[int, Rpc] = {}
        self._transport: asyncio.Transport
        self._paused = False  # the kernel takes no more for now
        self._blocks = False  # some RPC is blocked
        self._gathers = False  # what is sent waits for the end of the loop's turn
        self._view = _buffer.view
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(
        self, method: str, on_message: Callable[[bytes], None], timeout_seconds: float | None = None
    ) -> Rpc:
        """Begin an RPC, of which the daemon is told the deadline; on a connection that was lost it has ended."""
        if self._http2.closed is not None:
            rpc = Rpc(self, 0, on_message)
            rpc.end(self._http2.closed)
            return rpc
        stream = self._http2.begin(method, timeout_seconds)
        rpc = self._rpcs[stream] = Rpc(self, stream, on_message)
        rpc.blocked = self._paused
        return rpc

    def send(self, rpc: Rpc, message: bytes, *, last: bool = False) -> None:
        """Send a message of an RPC."""
        if self._http2.send(rpc.stream, message):
            rpc.blocked = self._blocks = True
        if last:
            self._http2.end_messages(rpc.stream)
        self._write()

    def gather(self) -> None:
        """Send what is sent from now on in one piece, when the loop has run what is ready: after news for several tasks."""
        if not self._gathers:
            self._gathers = True
            asyncio.get_running_loop().call_soon(self._send_gathered)

    def _send_gathered(self) -> None:
        self._gathers = False
        self._write()

    def drop(self) -> None:
        """Lose the connection at once: what is open on it ends as when the line breaks."""
        self._transport.abort()

    def forget(self, stream: int) -> None:
        """Cancel an RPC that has not ended."""
        if self._rpcs.pop(stream, None) is not None:
            self._http2.cancel(stream)
            self._write()

    def read(self, on: bool) -> None:
        """Read on, or leave what comes to the kernel, and in the end to the daemon."""
        if not self._transport.is_closing():
            (self._transport.resume_reading if on else self._transport.pause_reading)()

    async def close(self) -> None:
        """End the connection and what is left of its RPCs."""
        for stream in list(self._rpcs):
            self._rpcs[stream].cancel()
        self._send_gathered()
        self._transport.close()
        await asyncio.wait({self.lost}, timeout=CLOSE_SECONDS)
        if not self.lost.done():
            self._transport.abort()

    def _write(self) -> None:
        if self._gathers or not self._http2.unsent:
            return
        out = self._http2.take()
        if not self._transport.is_closing():
            self._transport.write(out)
            if self._paused and self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
                self._transport.abort()

    def _wake(self) -> None:
        """Let the RPCs go on that were blocked and are not any more."""
        blocked = [rpc for rpc in self._rpcs.values() if rpc.blocked]
        for rpc in blocked:
            rpc.blocked = self._http2.waiting_bytes(rpc.stream) > 0
        self._blocks = any(rpc.blocked for rpc in blocked)
        for rpc in blocked:
            if rpc.on_writable is not None and not rpc.blocked:
                rpc.on_writable()

    # Of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with what a connection begins with."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses
        self._write()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what has come."""
        for event in self._http2.receive(self._view[:nbytes]):
            rpc = self._rpcs.get(event.stream)
            if rpc is None:
                continue
            if isinstance(event, Message):
                try:
                    rpc.on_message(event.data)
                except Exception as error:  # noqa: BLE001  # raised where the RPC is awaited
                    rpc.fail(error)
            else:
                del self._rpcs[event.stream]
                rpc.end(event.status)
        self._write()
        if self._blocks and not self._paused:
            self._wake()

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        self._paused = self._blocks = True
        for rpc in self._rpcs.values():
            rpc.blocked = True

    def resume_writing(self) -> None:
        """It takes more again."""
        self._paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what has not ended."""
        why = "it has closed the connection" if exc is None else str(exc)
        for end in self._http2.lose(why):
            if (rpc := self._rpcs.pop(end.stream, None)) is not None:
                rpc.end(end.status)
        if not self.lost.done():
            self.lost.set_result(None)


async def open_link(socket: str, token: str) -> RpcLink:
    """Connect to the daemon on `socket`; `close` the connection in the end. Raises OSError."""
    _, link = await asyncio.get_running_loop().create_unix_connection(lambda: RpcLink(token), socket)
    return link
