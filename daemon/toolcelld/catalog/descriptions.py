"""Describes tool files: from the cache, else in a worker; each digest once, a few files at a time.

The task that describes a file is shared by all directories that need its digest. It continues when a caller stops
waiting, because its result is cached; at most `describing_max` such tasks run without a caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from toolcelld.catalog.description import Description
from toolcelld.catalog.sources import ToolFile

__all__ = ["Cache", "Describe", "DescriptionCache"]

Describe = Callable[[ToolFile], Awaitable[Description]]


class Cache(Protocol):
    """A persistent store of descriptions."""

    async def get_many(self, digests: Sequence[str], /) -> Mapping[str, bytes]:
        """Return the values of the digests that are stored."""
        ...

    def put(self, digest: str, value: bytes, /) -> None:
        """Store a value without waiting for the write."""
        ...


class DescriptionCache:
    """Describes files, sharing the work between directories. Its tasks run in the given group until `close`."""

    def __init__(
        self, group: asyncio.TaskGroup, describe: Describe, cache: Cache, describing_max: int
    ) -> None:
        self.describing_max = describing_max
        self._group = group
        self._describe = describe
        self._cache = cache
        self._slots = asyncio.Semaphore(describing_max)
        self._running: dict[str, asyncio.Task[Description]] = {}

    async def cached(self, digests: Sequence[str]) -> Mapping[str, Description]:
        """Return the descriptions that the cache holds, by digest."""
        if not digests:
            return {}
        return await asyncio.to_thread(_parsed, await self._cache.get_many(digests))

    def start(self, file: ToolFile) -> asyncio.Task[Description]:
        """Return the task that describes a file, starting one unless its digest is being described. Await it shielded."""
        task = self._running.get(file.digest)
        if task is None:
            task = self._running[file.digest] = self._group.create_task(self._described(file))
            task.add_done_callback(lambda _: self._running.pop(file.digest, None))
        return task

    async def settle(self, wait_seconds: float) -> None:
        """Wait until what is being described now is described, at most `wait_seconds`."""
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=wait_seconds)

    def close(self) -> None:
        """Cancel all running tasks."""
        for task in list(self._running.values()):
            task.cancel()

    async def _described(self, file: ToolFile) -> Description:
        async with self._slots:
            description = await self._describe(file)
        if description.broken is None:  # failures are not cached: their cause may lie outside the file
            with suppress(ValueError):  # not valid Unicode: the catalog rejects that tool
                self._cache.put(file.digest, description.to_json())
        return description


def _parsed(cached: Mapping[str, bytes]) -> dict[str, Description]:
    descriptions: dict[str, Description] = {}
    for digest, raw in cached.items():
        with suppress(ValueError):  # written by another version, or damaged: describe the file again
            descriptions[digest] = Description.from_json(raw)
    return descriptions
