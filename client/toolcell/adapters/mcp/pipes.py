"""MCP's stdio transport: one JSON message a line, over our stdin and stdout.

Not the SDK's own: that one reads in a thread which nothing can wake, so that a signal would end us only after the
host's next line. Here both ends are pipes of the loop, and `end` is an end of the input like any other.

A line that is no message is answered as JSON-RPC says, without an id, as there is none to be read.
Meanwhile stdin is empty and stdout is stderr for other code, so that output of a library does not reach the protocol.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
from mcp import types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

__all__ = ["NoPipe", "Pipes"]

MESSAGE_BYTES_MAX = 64 * 1024 * 1024  # 16 MiB of arguments, written in escapes
LAST_WORDS_SECONDS = 1.0  # for a host that has stopped reading


class NoPipe(Exception):
    """stdin or stdout is not connected to a host."""


class Pipes:
    """Our stdin and stdout as the two streams that the SDK's server runs on. An asynchronous context manager.

    The server reads and writes the pipes itself: a task and a queue between them would cost each message several turns
    of the event loop.
    """

    async def __aenter__(self) -> Self:
        for descriptor, name in ((0, "stdin"), (1, "stdout")):
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)):
                raise NoPipe(f"{name} is no pipe: an MCP host is expected at its other end.")
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MESSAGE_BYTES_MAX)
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(_taken(0, _nothing()), "rb", 0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
            os.fdopen(_taken(1, os.dup(2)), "wb", 0),
        )
        self.write = _Output(asyncio.StreamWriter(transport, protocol, None, loop), self.end)
        self.read = _Input(reader, incoming, self.write)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        await self.write.flush()

    def end(self) -> None:
        """End the input, as the host does when it closes its end; harmless twice."""
        self.read.end()


class _Stream:
    """What the streams of the SDK have in common: they are contexts that close them."""

    async def aclose(self) -> None:
        """The pipes are closed by `Pipes`, after the last words."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Output(_Stream):
    """Messages to the host."""

    def __init__(self, writer: asyncio.StreamWriter, on_broken: Callable[[], None]) -> None:
        self._writer = writer
        self._on_broken = on_broken

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message; waits while the host does not read."""
        self._writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        try:
            await self._writer.drain()
        except OSError as error:  # the host is gone
            self._on_broken()
            raise anyio.BrokenResourceError from error

    async def flush(self) -> None:
        """Close when the host has read all, or has not for too long."""
        self._writer.close()
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._writer.wait_closed()
        except TimeoutError:
            self._writer.transport.abort()
        except OSError:
            pass  # the host is gone


class _Input(_Stream):
    """Messages from the host; a line that is none is answered here."""

    def __init__(
        self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport, answers: _Output
    ) -> None:
        self._reader = reader
        self._transport = transport
        self._answers = answers
        self._ended = False

    def end(self) -> None:
        """End; who waits for a message gets the end."""
        self._ended = True
        self._transport.close()
        self._reader.feed_eof()

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises anyio.EndOfStream."""
        while True:
            try:
                line = await self._reader.readline()
                if not line or self._ended:
                    raise anyio.EndOfStream
                if line.strip():
                    return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValidationError as error:
                await self._refuse(error)
            except ValueError:  # the line is too long, and what follows of it is read as another
                await self._say(types.PARSE_ERROR, f"A line has at most {MESSAGE_BYTES_MAX} bytes.")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def _refuse(self, error: ValidationError) -> None:
        if any(found["type"] == "json_invalid" for found in error.errors()):
            await self._say(types.PARSE_ERROR, "Parse error: the line is no JSON.")
        else:
            await self._say(types.INVALID_REQUEST, "Invalid request: the line is no message of JSON-RPC 2.0.")

    async def _say(self, code: int, message: str) -> None:
        error = types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=message))
        with suppress(anyio.BrokenResourceError):
            await self._answers.send(SessionMessage(error))


def _taken(descriptor: int, instead: int) -> int:
    """A private duplicate of a standard descriptor, which is replaced for other code."""
    ours = os.dup(descriptor)
    os.dup2(instead, descriptor)
    os.close(instead)
    return ours


def _nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
