"""Describes tool files: from the cache, else in a worker; each digest once, a few files at a time.

The task that describes a file is shared by all directories that need its digest. It continues when nothing wants it any
more, because its result is cached; one that has not begun then is dropped, so that a file that is written without pause
leaves no queue of its old versions.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.discovery.sources import ToolFile

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
        self._begun: set[str] = set()  # of the running ones
        self._wanted: Counter[str] = Counter()  # by how many callers

    async def cached(self, digests: Sequence[str]) -> Mapping[str, Description]:
        """Return the descriptions that the cache holds, by digest."""
        if not digests:
            return {}
        return await asyncio.to_thread(_parsed, await self._cache.get_many(digests))

    @contextmanager
    def wanted(self, file: ToolFile) -> Generator[asyncio.Task[Description]]:
        """The task that describes a file, started unless its digest is being described. Await it shielded, within."""
        digest = file.digest
        task = self._running.get(digest)
        if task is None:
            task = self._running[digest] = self._group.create_task(self._described(file))
            task.add_done_callback(functools.partial(self._forget, digest))
        self._wanted[digest] += 1
        try:
            yield task
        finally:
            self._wanted[digest] -= 1
            if not self._wanted[digest]:
                del self._wanted[digest]
                if not task.done() and digest not in self._begun:
                    task.cancel()
                    self._forget(digest, task)  # now, so that it is started again when it is wanted again

    def _forget(self, digest: str, task: asyncio.Task[Description]) -> None:
        if self._running.get(digest) is task:
            del self._running[digest]
            self._begun.discard(digest)

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
            self._begun.add(file.digest)
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
