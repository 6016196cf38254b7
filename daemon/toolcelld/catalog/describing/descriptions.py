"""Describes tool files: from the cache, else in a worker; each digest once, and a few files at a time (`turns`).

The task that describes a file is shared by all directories that need its digest. It continues when nothing wants it any
more, because its result is cached; one that has not begun then is dropped, so that a file that is written without pause
leaves no queue of its old versions.

Failures are not stored, because their cause may lie outside the file. That a file does not end loading is remembered
until the daemon ends, so that a session that opens does not wait for it again.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.describing.turns import Turns
from toolcelld.catalog.discovery.sources import ToolFile

ENDLESS_MAX: Final = 256
"""Files that are remembered not to end loading; the oldest is forgotten."""

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
        self._turns = Turns(describing_max)
        self._running: dict[str, asyncio.Task[Description]] = {}
        self._begun: set[str] = set()  # of the running ones
        self._wanted: Counter[str] = Counter()  # by how many callers
        self._endless: dict[str, Description] = {}  # by digest, of files that do not end loading

    async def cached(self, digests: Sequence[str]) -> Mapping[str, Description]:
        """Return the descriptions that the cache holds and the remembered failures, by digest."""
        if not digests:
            return {}
        stored = await asyncio.to_thread(_parsed, await self._cache.get_many(digests))
        return {digest: self._endless[digest] for digest in digests if digest in self._endless} | stored

    def replace(self, file: ToolFile, description: Description) -> None:
        """Have another description of a file, as the server that it is tells of."""
        with suppress(ValueError):  # not valid Unicode: the catalog rejects that tool
            self._cache.put(file.digest, description.to_json())

    def is_endless(self, file: ToolFile) -> bool:
        """Whether the file did not end loading when it was described last."""
        return file.digest in self._endless

    def forget_failures(self) -> None:
        """Wait for every file once more: the rules under which they were loaded have changed."""
        self._endless.clear()

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
        def describe() -> Awaitable[Description]:
            self._begun.add(file.digest)
            return self._describe(file)

        description = await self._turns.run(file.directory, describe)
        self._endless.pop(file.digest, None)
        if description.broken is None:
            with suppress(ValueError):  # not valid Unicode: the catalog rejects that tool
                self._cache.put(file.digest, description.to_json())
        elif description.broken.stage == "deadline":
            self._endless[file.digest] = description
            if len(self._endless) > ENDLESS_MAX:
                del self._endless[next(iter(self._endless))]
        return description


def _parsed(cached: Mapping[str, bytes]) -> dict[str, Description]:
    descriptions: dict[str, Description] = {}
    for digest, raw in cached.items():
        with suppress(ValueError):  # written by another version, or damaged: describe the file again
            descriptions[digest] = Description.from_json(raw)
    return descriptions
