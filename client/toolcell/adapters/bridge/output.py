"""What goes to the host.

What may be long or frequent waits for its turn and for the host to read, so that at most one such message lies in memory
beyond what the pipe takes; events that come meanwhile are dropped by the call's own buffer, which counts them.
Answers to what the host says wrongly do not wait. So that they are bounded, nothing is read of a host that does not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from toolcell.adapters.pipes import Pipes

from .messages import encode

UNREAD_BYTES_MAX: Final = 1024 * 1024
"""Of what is written while nothing is read of the host any more; some thousands of answers."""
LAST_WORDS_SECONDS: Final = 1.0
"""For a host that has ended its input and does not read; each byte that it reads gives it as long again."""


class HostLines:
    """The lines to one host."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes
        self._turn = asyncio.Lock()

    def say(self, message: Mapping[str, Any]) -> None:
        """Write a short message."""
        self._pipes.put(encode(message))

    async def tell(self, message: Mapping[str, Any]) -> None:
        """Write a message when it is its turn. Raises ValueError if it is no JSON; a host that is gone does not hear it."""
        line = encode(message)
        async with self._turn:
            self._pipes.put(line)
            with suppress(OSError):
                await self._pipes.drained()

    async def room(self) -> None:
        """Wait while the host does not read, unless it has ended its input."""
        while self._pipes.unwritten > UNREAD_BYTES_MAX and not self._pipes.ended.is_set():
            drained = asyncio.create_task(self._drained())
            ended = asyncio.create_task(self._pipes.ended.wait())
            try:
                await asyncio.wait({drained, ended}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                drained.cancel()
                ended.cancel()
                await asyncio.wait({drained, ended})

    async def until(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait for tasks that may write; a host that has stopped reading does not hear what is left."""
        before = 0
        while tasks:
            _, tasks = await asyncio.wait(tasks, timeout=LAST_WORDS_SECONDS)
            unwritten = self._pipes.unwritten
            if tasks and unwritten and unwritten == before:
                self._pipes.abort()
            before = unwritten

    async def _drained(self) -> None:
        with suppress(OSError):
            await self._pipes.drained()
