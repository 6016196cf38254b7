"""Following what a daemon tells, and what the next one does when it ends.

The daemon that comes next knows by its records what happened at the end of the one before. So it is asked for what there is
since a little before the last answer, and what was told already is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from toolcell.client import Refused, Unavailable
from toolcell.client._transport.operator import Operator
from toolcell_proto.v1 import operator_pb2 as op

from .connect import CommandContext, operator
from .exit_codes import Failure
from .terminal import Terminal

T = TypeVar("T")
R = TypeVar("R", op.ListCallsRequest, op.ListEventsRequest)

UNREACHABLE: Final = "unreachable"
"""The reason for which a request has no answer where its daemon ends, or is about to serve."""
AGAIN_SECONDS: Final = 1.0
"""Between two looks for the next daemon."""
OVERLAP: Final = timedelta(minutes=1)
"""What is recorded of the end of a daemon has the time at which it was last known to run."""
LATEST_MAX: Final = 1000
"""Answers that are known again; as many are asked for of the time since."""


async def followed(
    context: CommandContext, watch: Callable[[Operator], AsyncIterator[T]]
) -> AsyncIterator[T]:
    """Yield what the running daemon tells, and then each that comes after it. Raises `Unavailable` where none runs.

    `watch` asks a daemon, which may be another one each time.
    """
    terminal = Terminal(quiet=context.quiet)
    is_first, refused = True, False
    while True:
        is_there = False
        try:
            async with operator(context) as client:
                is_there = True
                if not is_first:
                    terminal.note("A daemon runs again.\n")
                async for answer in watch(client):
                    refused = False
                    yield answer
        except (Unavailable, Refused, Failure, OSError) as error:
            was_refused, refused = refused, isinstance(error, Refused) and error.reason != UNREACHABLE
            if is_first and (refused or not is_there):
                raise
            if refused and was_refused:  # once, a token of the daemon before may have been read
                raise
        if is_there:
            terminal.note("The daemon has ended; waiting for the next one.\n")
        is_first = False
        await asyncio.sleep(AGAIN_SECONDS)


class Seen:
    """What was told already."""

    def __init__(self) -> None:
        self._latest: dict[Hashable, None] = {}
        self._last: datetime | None = None

    def wanted(self, request: R) -> R:
        """Return what a daemon is asked for: the request, or what it would list since a little before the last answer."""
        wanted = type(request)()
        wanted.CopyFrom(request)
        if self._last is not None:
            wanted.since.FromDatetime(self._last - OVERLAP)
            wanted.ClearField("until")
            wanted.limit = LATEST_MAX
        return wanted

    def is_new(self, time: datetime | None, known: Hashable) -> bool:
        """Return whether an answer is told for the first time; `known` tells it from others."""
        if time is not None and (self._last is None or time > self._last):
            self._last = time
        if known in self._latest:
            return False
        self._latest[known] = None
        if len(self._latest) > LATEST_MAX:
            del self._latest[next(iter(self._latest))]
        return True
