"""Where descriptions come from: the cache, else a cell; each digest once, a few at a time.

The task that describes a file belongs to nobody in particular: whoever needs the digest joins it, and one who
loses interest leaves it to the others and to the cache. So at most `describing_max` outlive their last asker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from toolcelld.description import Description
from toolcelld.sources import ToolFile

__all__ = ["Cache", "Describe", "Descriptions"]

Describe = Callable[[ToolFile], Awaitable[Description]]


class Cache(Protocol):
    """Where descriptions outlive the daemon."""

    async def get_many(self, digests: Sequence[str], /) -> Mapping[str, bytes]:
        """Those that are known."""
        ...

    def put(self, digest: str, value: bytes, /) -> None:
        """Keep one; returns at once."""
        ...


class Descriptions:
    """Describes files for everybody. The tasks live in the given group until `close`."""

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
        """Those that the cache has."""
        if not digests:
            return {}
        return await asyncio.to_thread(_parsed, await self._cache.get_many(digests))

    def start(self, file: ToolFile) -> asyncio.Task[Description]:
        """The task that describes a file, shared by its digest. Await it through a shield."""
        task = self._running.get(file.digest)
        if task is None:
            task = self._running[file.digest] = self._group.create_task(self._described(file))
            task.add_done_callback(lambda _: self._running.pop(file.digest, None))
        return task

    def close(self) -> None:
        """Cancel what runs."""
        for task in list(self._running.values()):
            task.cancel()

    async def _described(self, file: ToolFile) -> Description:
        async with self._slots:
            description = await self._describe(file)
        if description.broken is None:  # the cause of a failure may lie outside the file, and be mended there
            with suppress(ValueError):  # text that is none: the catalog rejects the tool that has it
                self._cache.put(file.digest, description.to_json())
        return description


def _parsed(cached: Mapping[str, bytes]) -> dict[str, Description]:
    descriptions: dict[str, Description] = {}
    for digest, raw in cached.items():
        with suppress(ValueError):  # written by another version, or damaged: it is described anew
            descriptions[digest] = Description.from_json(raw)
    return descriptions
