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
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

__all__ = ["NoPipe", "Pipes"]

MESSAGE_BYTES_MAX = 64 * 1024 * 1024  # 16 MiB of arguments, written in escapes
LAST_WORDS_SECONDS = 1.0  # for a host that has stopped reading


class NoPipe(Exception):
    """stdin or stdout is not connected to a host."""


class Pipes:
    """Our stdin and stdout as the two streams that the SDK's server runs on. An asynchronous context manager."""

    read: MemoryObjectReceiveStream[SessionMessage | Exception]
    write: MemoryObjectSendStream[SessionMessage]

    async def __aenter__(self) -> Self:
        for descriptor, name in ((0, "stdin"), (1, "stdout")):
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)):
                raise NoPipe(f"{name} is no pipe: an MCP host is expected at its other end.")
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=MESSAGE_BYTES_MAX)
        self._incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), os.fdopen(_taken(0, _nothing()), "rb", 0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
            os.fdopen(_taken(1, os.dup(2)), "wb", 0),
        )
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        received, self.read = anyio.create_memory_object_stream[SessionMessage | Exception]()
        self.write, to_send = anyio.create_memory_object_stream[SessionMessage]()
        self._refusals = self.write.clone()
        # Both are awaited by `__aexit__`.
        self._receiving = asyncio.create_task(self._receive(received), name="stdin")
        self._sending = asyncio.create_task(self._send(to_send), name="stdout")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        self._refusals.close()
        self.write.close()
        await asyncio.wait({self._sending}, timeout=LAST_WORDS_SECONDS)
        self._sending.cancel()
        await asyncio.wait({self._receiving, self._sending})
        self.read.close()
        self._incoming.close()
        if not self._writer.transport.is_closing():  # by then it has ended by itself, and cannot be asked to
            self._writer.transport.abort()

    def end(self) -> None:
        """End the input, as the host does when it closes its end; harmless twice."""
        self._receiving.cancel()

    async def _receive(self, received: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with received:
                while True:
                    try:
                        line = await self._reader.readline()
                        if not line:
                            return
                        if not line.strip():
                            continue
                        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValidationError as error:
                        await self._refuse(error)
                    except ValueError:  # the line is too long, and what follows of it is read as another
                        await self._say(types.PARSE_ERROR, f"A line has at most {MESSAGE_BYTES_MAX} bytes.")
                    else:
                        await received.send(SessionMessage(message))

    async def _refuse(self, error: ValidationError) -> None:
        if any(found["type"] == "json_invalid" for found in error.errors()):
            await self._say(types.PARSE_ERROR, "Parse error: the line is no JSON.")
        else:
            await self._say(types.INVALID_REQUEST, "Invalid request: the line is no message of JSON-RPC 2.0.")

    async def _say(self, code: int, message: str) -> None:
        error = types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=message))
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._refusals.send(SessionMessage(error))

    async def _send(self, to_send: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async with to_send:
                async for item in to_send:
                    self._writer.write(
                        item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                    )
                    await self._writer.drain()
        except OSError:  # the host is gone
            self.end()


def _taken(descriptor: int, instead: int) -> int:
    """A private duplicate of a standard descriptor, which is replaced for other code."""
    ours = os.dup(descriptor)
    os.dup2(instead, descriptor)
    os.close(instead)
    return ours


def _nothing() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
