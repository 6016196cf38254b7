"""The lines of a host as the two streams that the SDK's server runs on.

The server reads and writes the pipes itself: a task and a queue between them would cost each message several turns of
the event loop.

Lines that came before the SDK was there are read first. Of these some were answered already (`start.opening`); the server
answers them as well, and that answer is dropped.

A line that is no message is answered as JSON-RPC says, without an id, as there is none to be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
from mcp import types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from .start import wire
from .start.pipes import LineTooLong, Pipes

__all__ = ["Messages"]


class Messages:
    """The streams from and to a host: `read` and `write`."""

    def __init__(
        self, pipes: Pipes, first: Iterable[bytes] = (), answered: Iterable[wire.RequestId] = ()
    ) -> None:
        """`first` are lines that were read before, `answered` the ids of the requests in them that have their answer."""
        self.read = _Input(pipes, deque(first))
        self.write = _Output(pipes, set(answered))


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

    def __init__(self, pipes: Pipes, answered: set[wire.RequestId]) -> None:
        self._pipes = pipes
        self._answered = answered

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message; waits while the host does not read."""
        message = item.message
        if self._answered and (answered := _answered_by(message)) in self._answered:
            self._answered.remove(answered)
            return
        try:
            await self._pipes.write(
                message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            )
        except OSError as error:  # the host is gone
            raise anyio.BrokenResourceError from error


def _answered_by(message: types.JSONRPCMessage) -> wire.RequestId | None:
    """The request that a message answers first: a subscription by its acknowledgement."""
    match message:
        case types.JSONRPCResponse() | types.JSONRPCError():
            return message.id
        case types.JSONRPCNotification(
            method=wire.ACKNOWLEDGED, params={"_meta": {wire.SUBSCRIPTION_KEY: found}}
        ):
            return found if isinstance(found, int | str) else None
        case _:
            return None


class _Input(_Stream):
    """Messages from the host; a line that is none is answered here."""

    def __init__(self, pipes: Pipes, first: deque[bytes]) -> None:
        self._pipes = pipes
        self._first = first

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message. Raises anyio.EndOfStream."""
        while True:
            try:
                line = self._first.popleft() if self._first else await self._pipes.read()
                if not line:
                    raise anyio.EndOfStream
                if line.strip():
                    return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValidationError as error:
                await self._refuse(error)
            except LineTooLong as error:
                await self._say(wire.PARSE_ERROR, str(error))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def _refuse(self, error: ValidationError) -> None:
        if any(found["type"] == "json_invalid" for found in error.errors()):
            await self._say(wire.PARSE_ERROR, "Parse error: the line is no JSON.")
        else:
            await self._say(wire.INVALID_REQUEST, "Invalid request: the line is no message of JSON-RPC 2.0.")

    async def _say(self, code: int, message: str) -> None:
        with suppress(OSError):
            await self._pipes.write(wire.error(code, message))
