"""What goes on, for every open page: one look at the daemon for all of them, and none while no page is open.

A look is four short RPCs each two seconds on one connection, which cost the daemon some milliseconds. A stream of all
events would be more immediate, and cost it as much as there are calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, Final, Self

import psutil

from toolcell.adapters.gateway.feed import Feed, FeedEvent, as_sse
from toolcell.cli._ui.connect import CommandContext, operator
from toolcell.cli._ui.exit_codes import Failure
from toolcell.cli._ui.json_output import record
from toolcell.cli.page.access import PageSession
from toolcell.cli.page.rows import row
from toolcell.client import Refused, Unavailable
from toolcell.client._transport.operator import Operator
from toolcell_proto.v1 import operator_pb2 as op

LOOK_SECONDS: Final = 2.0
CALLS_SHOWN_MAX: Final = 30


class Live:
    """An asynchronous context manager; its end is the end of all streams."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._feed = Feed()
        self._readers = 0
        self._wanted = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._look(), name="live")  # awaited by __aexit__
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._looking is not None
        self._looking.cancel()
        await asyncio.wait({self._looking})
        if not self._looking.cancelled():
            self._looking.result()

    async def stream(self, session: PageSession) -> AsyncGenerator[bytes]:
        """Yield the state of the daemon as server-sent events, until the session is over."""
        with self._feed.reader() as reader:
            self._readers += 1
            self._wanted.set()
            try:
                async for part in as_sse(reader, lambda _: session.over):
                    yield part
                    session.used = time.monotonic()  # a page that is looked at is used
            finally:
                self._readers -= 1
                if not self._readers:
                    self._wanted.clear()

    async def _look(self) -> None:
        while True:
            await self._wanted.wait()
            try:
                async with operator(self._context) as client:
                    while self._readers:
                        self._feed.put(FeedEvent("state", await _state(client)))
                        await asyncio.sleep(LOOK_SECONDS)
            except (Unavailable, Refused, Failure) as error:
                told = {"unavailable": error.message, "remedy": error.remedy, "host": host()}
                self._feed.put(FeedEvent("state", told))
                await asyncio.sleep(LOOK_SECONDS)


async def _state(client: Operator) -> dict[str, Any]:
    status = await client.ask(client.operator.GetStatus, op.GetStatusRequest())
    workers = await client.ask(client.operator.ListWorkers, op.ListWorkersRequest())
    calls = await client.ask(client.operator.ListCalls, op.ListCallsRequest(limit=CALLS_SHOWN_MAX))
    last = await client.ask(client.operator.ListEvents, op.ListEventsRequest(limit=1))
    return {
        "status": record(status),
        "workers": [record(worker) for worker in workers.workers],
        "calls": [row(call) for call in calls.calls],
        "last_event": [record(event)["time"] for event in last.events],
        "host": host(),
    }


def host() -> dict[str, Any]:
    """Figures of this machine, on which the daemon runs too."""
    load, *_ = psutil.getloadavg()
    memory = psutil.virtual_memory()
    return {
        "time": time.time(),
        "processors": psutil.cpu_count(),
        "load": load,
        "memory_bytes": memory.total,
        "memory_free_bytes": memory.available,
    }
