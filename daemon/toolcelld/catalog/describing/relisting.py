"""New lists of the tools of running MCP servers: read off the loop, compared with what is known, and held to a rate.

A server says that its tools have changed as often as it likes. The newest list of each counts, and one that offers the same
is nothing new. A list that differs makes a new catalog for every session that has the server, so a server may have
`CHANGES_MAX` of them in `CHANGES_SECONDS`; then its tools stay as they are until it tells of others later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from toolcelld.catalog.describing.description import Described, Description
from toolcelld.catalog.discovery.sources import ToolFile

CHANGES_MAX: Final = 30
"""Each is a new catalog, which hosts ask for; a person who switches tools on and off makes a few."""
CHANGES_SECONDS: Final = 600.0
SERVERS_MAX: Final = 1000
"""Whose changes are counted; the one that has begun to be counted first is forgotten."""

Listed: TypeAlias = Description | bytes
"""A description, or one as JSON that is not read yet."""


class Relisting:
    """Takes the lists that servers tell of.

    Args:
        group: Runs the tasks.
        known: Returns the description that is known of a file, or None.
        replace: Takes another description of a file.
        tell: Takes what the log of a server has to say of a list that is not taken.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        known: Callable[[ToolFile], Awaitable[Description | None]],
        replace: Callable[[ToolFile, Description], None],
        tell: Callable[[ToolFile, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._known = known
        self._replace = replace
        self._tell = tell
        self._clock = clock
        # The mutable state, by the digest of the entry.
        self._newest: dict[str, Listed] = {}  # that are not compared yet
        self._comparing: dict[str, asyncio.Task[None]] = {}
        self._changes: dict[str, tuple[float, int]] = {}  # since when changes are counted, and how many

    def take(self, file: ToolFile, listed: Listed) -> None:
        """Take the tools that the server of a file has now; one that comes before the last was compared replaces it."""
        self._newest[file.digest] = listed
        if file.digest not in self._comparing:
            self._comparing[file.digest] = self._group.create_task(self._compare(file))

    def close(self) -> None:
        """Cancel all running tasks."""
        for task in list(self._comparing.values()):
            task.cancel()

    async def _compare(self, file: ToolFile) -> None:
        digest = file.digest
        try:
            while (listed := self._newest.pop(digest, None)) is not None:
                if isinstance(listed, bytes):
                    try:
                        listed = await asyncio.to_thread(Description.from_json, listed)
                    except ValueError as error:
                        self._tell(file, f"its new tools cannot be read: {str(error)[:200]}")
                        continue
                known = await self._known(file)
                if known is not None and _by_name(known) == _by_name(listed):
                    continue
                if self._is_allowed(digest):
                    self._replace(file, listed)
                elif self._changes[digest][1] == CHANGES_MAX + 1:
                    said = f"its tools have changed {CHANGES_MAX} times in {CHANGES_SECONDS / 60:g} minutes"
                    self._tell(file, f"{said}, and stay as they are now until they change later")
        finally:
            del self._comparing[digest]

    def _is_allowed(self, digest: str) -> bool:
        now = self._clock()
        since, count = self._changes.pop(digest, (now, 0))
        if now - since >= CHANGES_SECONDS:
            since, count = now, 0
        self._changes[digest] = since, count + 1
        if len(self._changes) > SERVERS_MAX:
            del self._changes[next(iter(self._changes))]
        return count < CHANGES_MAX


def _by_name(description: Description) -> dict[str, Described]:
    """Return the tools of a description; their order is nothing that anything depends on."""
    return {tool.name: tool for tool in description.tools}
