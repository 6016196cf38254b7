"""A directory in use: its newest catalog, its pins and its rescans.

A rescan reads the directory in a thread, takes known descriptions from the cache and publishes a catalog. It then
describes the remaining files in the background and publishes at most four catalogs a second, so that a thousand
files do not make a thousand generations.

Requests that arrive before a rescan has started share it; later requests start another one, because the running
rescan may have read the directory before their edit. Every rescan describes broken files again, as the cause may
lie outside the file (for example a package that was installed since). The known failure is reported until then,
and opening a directory does not wait for it. A rescan does not wait for files that did not end loading the last time.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from toolcelld.catalog.assembly import assemble
from toolcelld.catalog.catalog import Catalog, ToolInfo
from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.describing.descriptions import DescriptionCache
from toolcelld.catalog.discovery.scan import Scan, scan
from toolcelld.catalog.discovery.sources import ToolFile, sources_of
from toolcelld.catalog.permissions import denied_by
from toolcelld.catalog.problem import Problem
from toolcelld.config.load import Config
from toolcelld.files.looks import look

PUBLISH_SECONDS = 0.25  # between two generations while files are being described


@dataclass(frozen=True, slots=True)
class CatalogRules:
    """What is decided about the tools of a directory, as functions that return the decisions of now.

    Attributes:
        config: The configuration.
        is_trusted: Whether a tool is trusted: one that is not hides no other.
        define: Changes the definitions of a new catalog.
        taken_out: The tools that an operator has disabled by now, as `assemble` takes them.
        settle: Takes out of a new catalog what has to be accepted first, on the loop, just before it is published.
    """

    config: Callable[[], Config]
    is_trusted: Callable[[], Callable[[ToolInfo], bool]] = lambda: lambda _: True
    define: Callable[[Catalog], Awaitable[Catalog]] | None = None
    taken_out: Callable[[], Mapping[str, str]] = dict
    settle: Callable[[Catalog], Catalog] = lambda catalog: catalog


class Pin:
    """A reference to a directory's catalog. It stays at its generation until `advance` or `subscribe`."""

    def __init__(self, watched: WatchedDirectory) -> None:
        self.watched = watched
        self.catalog = watched.catalog
        self.on_change: Callable[[Catalog], object] | None = None  # set by `subscribe`

    def __repr__(self) -> str:
        return f"<Pin {self.catalog.directory} generation {self.catalog.generation}>"

    @property
    def latest(self) -> Catalog:
        """The newest catalog of the directory."""
        return self.watched.catalog

    @property
    def scanned(self) -> tuple[ToolFile, ...]:
        """The files of the last scan, also those that are not described."""
        return self.watched.scanned

    def want(self, path: str) -> None:
        """Describe a file before others: a call waits for it."""
        self.watched.want(path)

    def advance(self) -> Catalog:
        """Move to the newest catalog."""
        self.catalog = self.watched.catalog
        return self.catalog

    def subscribe(self, on_change: Callable[[Catalog], object]) -> Catalog:
        """Move to the newest catalog, and call back with every one after it, so that none is missed in between."""
        self.on_change = on_change
        return self.advance()

    def close(self) -> None:
        """Release the directory, which is closed with its last pin. Idempotent."""
        self.on_change = None
        self.watched.unpin(self)


class WatchedDirectory:
    """A directory with at least one pin. It closes itself when the last pin is closed."""

    def __init__(
        self,
        directory: str,
        rules: CatalogRules,
        group: asyncio.TaskGroup,
        descriptions: DescriptionCache,
        next_generation: Callable[[], int],
        forget: Callable[[], object],
    ) -> None:
        self.catalog = Catalog(directory)
        self.scanned: tuple[ToolFile, ...] = ()
        self.known = asyncio.Event()  # every file of the last scan has a description or a failure
        self.fresh = asyncio.Event()  # and failures have been described again, but for those of endless files
        self._rules = rules
        self._group = group
        self._descriptions = descriptions
        self._next_generation = next_generation
        self._forget = forget
        self._closed = False
        self._pins: set[Pin] = set()
        self._wanted: set[str] = set()  # paths of files that calls wait for
        self._due = asyncio.Event()  # what is described is published without delay
        self._known: dict[str, Description] = {}  # by digest; replaced by every rescan, extended by `_keep`
        self._seen: Scan | None = None  # the last scan
        self._rescan_lock = asyncio.Lock()
        self._assembling = asyncio.Lock()  # so that the last catalog is of what was known last
        self._queued: asyncio.Task[None] | None = None  # a rescan that has not read the directory yet
        # Describes the files that the last rescan did not know
        self._filling: asyncio.Task[None] | None = None
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
        """Cancel this directory's tasks and remove it from the registry. Idempotent."""
        if not self._closed:
            self._closed = True
            self._forget()
            for task in list(self._tasks):
                task.cancel()

    async def read(self) -> None:
        """Start or join a rescan, and wait until its catalog is published; what is new is being described then."""
        if self._queued is None:
            self._queued = self._spawn(self._rescan())
        await asyncio.shield(self._queued)

    async def rescan(self, enough: asyncio.Event | None, wait_seconds: float) -> None:
        """Start or join a rescan, then wait for `enough`, if there is something; at most `wait_seconds` in all."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await self.read()
                if enough is not None:
                    await enough.wait()

    def want(self, path: str) -> None:
        """Describe a file before others, and publish it as soon as that is done: a call waits for it."""
        if path not in self._wanted:
            self._wanted.add(path)
            self._due.set()

    def description_of(self, file: ToolFile) -> Description | None:
        """Return what is known of a file, or None."""
        return self._known.get(file.digest)

    def redescribe(self, file: ToolFile, description: Description) -> None:
        """Take another description of a file that is known, and publish the catalog with it."""
        if file.digest in self._known and not self._closed:
            self._known[file.digest] = description
            self._spawn(self._assemble_anew())

    async def _assemble_anew(self) -> None:
        if self._seen is not None:
            await self._assemble(self._seen)

    async def _rescan(self) -> None:
        async with self._rescan_lock:
            self._queued = None  # a later request may follow an edit that this rescan does not see
            directory = self.catalog.directory
            seen = await look(directory, _look, self._rules.config(), directory, self.scanned)
            cached = await self._descriptions.cached(
                [file.digest for file in seen.files if file.digest not in self._known]
            )
            if self._filling is not None:
                self._filling.cancel()  # the descriptions that it started continue, and `_keep` stores them
            self.scanned, self._seen = seen.files, seen
            self._wanted.clear()  # by calls that have seen the catalog of an earlier scan
            # No await between reading and replacing `_known`: no description may arrive in between.
            both = {**cached, **self._known}
            self._known = {file.digest: both[file.digest] for file in seen.files if file.digest in both}
            then = dict(self._known)
            await self._assemble(seen)
            self._filling = self._spawn(self._fill(seen, then))
            _set_if(self.known, len(then) == len(seen.files))
            _set_if(self.fresh, self.known.is_set() and not self._to_check(seen, then))

    async def _fill(self, seen: Scan, then: Mapping[str, Description]) -> None:
        """Describe the files that were not known, then the files that were known to be broken."""
        await self._describe(seen, then, [file for file in seen.files if file.digest not in then])
        self.known.set()
        await self._describe(seen, then, self._to_check(seen, then))
        self.fresh.set()
        await self._describe(seen, then, [file for file in seen.files if _is_broken(then.get(file.digest))])

    def _to_check(self, seen: Scan, then: Mapping[str, Description]) -> list[ToolFile]:
        """Return the broken files that a rescan waits for: those that are soon described again."""
        broken = (file for file in seen.files if _is_broken(then.get(file.digest)))
        return [file for file in broken if not self._descriptions.is_endless(file)]

    async def _describe(self, seen: Scan, then: Mapping[str, Description], files: list[ToolFile]) -> None:
        """Describe files concurrently; publish a catalog at intervals and at the end."""
        rest = {file.path: file for file in files}
        arrived, done, due = asyncio.Event(), asyncio.Event(), self._due

        async def describe() -> None:
            while rest:
                file = rest.pop(next((path for path in self._wanted if path in rest), next(iter(rest))))
                # Otherwise another task has described it
                if self._known.get(file.digest) is then.get(file.digest):
                    with self._descriptions.wanted(file) as task:
                        task.add_done_callback(functools.partial(self._keep, file.digest))
                        await asyncio.shield(task)
                arrived.set()
                if file.path in self._wanted:
                    due.set()

        async def publish() -> None:
            last = False
            while not last:
                await arrived.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PUBLISH_SECONDS):
                        await due.wait()
                # Cleared before assembling: what arrives during it belongs to the next catalog.
                arrived.clear()
                due.clear()
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
            due.set()
            arrived.set()

    def _keep(self, digest: str, task: asyncio.Task[Description]) -> None:
        """Store a description, also when the rescan that wanted it has been replaced by another."""
        if not task.cancelled() and task.exception() is None:
            self._known[digest] = task.result()

    async def _assemble(self, seen: Scan) -> None:
        async with self._assembling:
            rules, config = self._rules, self._rules.config()
            catalog = await asyncio.to_thread(
                assemble,
                seen,
                dict(self._known),
                self.catalog,
                rules.is_trusted(),
                config.is_enabled,
                config.overrides_builtin,
                functools.partial(denied_by, config),
                rules.taken_out(),
            )
            if rules.define is not None:
                catalog = await rules.define(catalog)
            self._publish(rules.settle(catalog))

    def _publish(self, catalog: Catalog) -> None:
        """Make a catalog the newest, unless it equals the current one, and notify the pins."""
        if self.catalog.generation and catalog.says_the_same_as(self.catalog):
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


def _look(config: Config, directory: str, before: tuple[ToolFile, ...]) -> Scan:
    """Scan the sources of a directory, in a thread; where they cannot be told, return the files of the scan before, and why."""
    try:
        return scan(sources_of(config, directory), directory)
    except (OSError, ValueError) as error:
        problem = Problem(directory, "", "broken", f"cannot be read: {error}\nIts tools are those of before.")
        return Scan(directory, (*before, problem))
