"""One directory in use: its newest catalog, who holds it, and the round under way.

One look is a round: scan in a thread, take known descriptions from the cache, publish; then describe the rest
in the background, publishing what has come at most four times a second, so that a thousand files do not make
a thousand generations.

Everybody who asks before a round has begun shares that round; later ones get a new one, because the one under
way may have looked before their edit. Failures are described again in every round, as their cause may lie
outside the file (a package that has been installed since). The failure that is known goes on being told
meanwhile, and opening does not wait for it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace

from toolcelld.catalog import Catalog, assemble
from toolcelld.config import Config
from toolcelld.description import Description
from toolcelld.descriptions import Descriptions
from toolcelld.sources import Scan, ToolFile, scan, sources_of

__all__ = ["Pin", "Shelf"]

PUBLISH_SECONDS = 0.25  # between two generations while descriptions come in


class Pin:
    """One user's hold on the catalog of a directory. It stays at its generation until it is advanced."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.catalog = shelf.catalog
        self.on_change: Callable[[Catalog], object] | None = None

    def __repr__(self) -> str:
        return f"<Pin {self.catalog.directory} generation {self.catalog.generation}>"

    @property
    def latest(self) -> Catalog:
        """The newest catalog of the directory."""
        return self.shelf.catalog

    def advance(self) -> Catalog:
        """Move to the newest catalog."""
        self.catalog = self.shelf.catalog
        return self.catalog

    def close(self) -> None:
        """Let go. The directory is forgotten with its last pin. Harmless twice."""
        self.on_change = None
        self.shelf.unpin(self)


class Shelf:
    """A directory with at least one pin; it closes itself with the last."""

    def __init__(
        self,
        directory: str,
        config: Callable[[], Config],
        group: asyncio.TaskGroup,
        descriptions: Descriptions,
        next_generation: Callable[[], int],
        forget: Callable[[], object],
    ) -> None:
        self.catalog = Catalog(directory, directory)
        self.known = asyncio.Event()  # every file of the last scan has a description, be it a failure
        self.fresh = asyncio.Event()  # and every failure has been looked at again
        self._config = config
        self._group = group
        self._descriptions = descriptions
        self._next_generation = next_generation
        self._forget = forget
        self._closed = False
        self._pins: set[Pin] = set()
        self._known: dict[str, Description] = {}  # by digest; replaced by every round, added to by `_keep`
        self._one_round = asyncio.Lock()
        self._queued: asyncio.Task[None] | None = None  # a round that has not looked yet
        self._filling: asyncio.Task[None] | None = None  # the describing of what the last round did not know
        self._tasks: set[asyncio.Task[None]] = set()

    def pin(self) -> Pin:
        pin = Pin(self)
        self._pins.add(pin)
        return pin

    def unpin(self, pin: Pin) -> None:
        self._pins.discard(pin)
        if not self._pins:
            self.close()

    def close(self) -> None:
        """End what runs for this directory and forget it. Harmless twice."""
        if not self._closed:
            self._closed = True
            self._forget()
            for task in list(self._tasks):
                task.cancel()

    async def look(self, enough: asyncio.Event, wait_seconds: float) -> None:
        """Have a round of one's own, or share the next one, and wait for it, but only so long."""
        if self._queued is None:
            self._queued = self._spawn(self._round())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await asyncio.shield(self._queued)
                await enough.wait()

    async def _round(self) -> None:
        async with self._one_round:
            self._queued = None  # whoever comes from here on may have changed what we have already read
            seen = await asyncio.to_thread(_look, self._config(), self.catalog.directory)
            cached = await self._descriptions.cached(
                [file.digest for file in seen.files if file.digest not in self._known]
            )
            if self._filling is not None:
                self._filling.cancel()  # what it had under way goes on, and `_keep` keeps it
            # No await from the one dictionary to the other: nothing that arrives is lost between them.
            both = {**cached, **self._known}
            self._known = {file.digest: both[file.digest] for file in seen.files if file.digest in both}
            then = dict(self._known)
            await self._assemble(seen)
            self._filling = self._spawn(self._fill(seen, then))
            _set_if(self.known, len(then) == len(seen.files))
            _set_if(self.fresh, self.known.is_set() and not any(map(_is_broken, then.values())))

    async def _fill(self, seen: Scan, then: Mapping[str, Description]) -> None:
        """Describe what was not known then, and after that what was known to be broken."""
        await self._describe(seen, then, [file for file in seen.files if file.digest not in then])
        self.known.set()
        await self._describe(seen, then, [file for file in seen.files if _is_broken(then.get(file.digest))])
        self.fresh.set()

    async def _describe(self, seen: Scan, then: Mapping[str, Description], files: list[ToolFile]) -> None:
        """Describe files side by side, and publish what has come now and then, and at the end."""
        rest, arrived, done = iter(files), asyncio.Event(), asyncio.Event()

        async def describe() -> None:
            for file in rest:
                if self._known.get(file.digest) is then.get(file.digest):  # else it came meanwhile
                    task = self._descriptions.start(file)
                    task.add_done_callback(functools.partial(self._keep, file.digest))
                    await asyncio.shield(task)
                arrived.set()

        async def publish() -> None:
            last = False
            while not last:
                await arrived.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PUBLISH_SECONDS):
                        await done.wait()
                # Asked before: what comes while this one is put together is in the next.
                arrived.clear()
                last = done.is_set()
                await self._assemble(seen)

        if not files:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(publish())
            async with asyncio.TaskGroup() as describers:
                for _ in range(self._descriptions.describing_max):
                    describers.create_task(describe())
            done.set()
            arrived.set()

    def _keep(self, digest: str, task: asyncio.Task[Description]) -> None:
        """Keep a description also when the round that wanted it is over: the next one wants it as well."""
        if not task.cancelled() and task.exception() is None:
            self._known[digest] = task.result()

    async def _assemble(self, seen: Scan) -> None:
        self._publish(await asyncio.to_thread(_changed, seen, dict(self._known), self.catalog))

    def _publish(self, catalog: Catalog) -> None:
        """Make a catalog the newest, unless it says what the one before it says, and tell who holds the directory."""
        if catalog is self.catalog:
            return
        self.catalog = replace(catalog, generation=self._next_generation())
        for pin in tuple(self._pins):
            if pin.on_change is not None:
                pin.on_change(self.catalog)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_broken(description: Description | None) -> bool:
    return description is not None and description.broken is not None


def _set_if(event: asyncio.Event, condition: bool) -> None:
    if condition:
        event.set()
    else:
        event.clear()


# The following run in a thread; they touch nothing but what they are given.


def _look(config: Config, directory: str) -> Scan:
    return scan(sources_of(config, directory), directory)


def _changed(seen: Scan, descriptions: Mapping[str, Description], previous: Catalog) -> Catalog:
    """The catalog of a scan, or the previous one where it says the same."""
    catalog = assemble(seen, descriptions, previous)
    return previous if catalog.says_the_same_as(previous) and previous.generation else catalog
