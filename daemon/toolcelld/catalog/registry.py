"""The registry of the directories in use and their catalogs.

A directory is scanned when it is opened, when a client or an operator asks for it and, for sessions that follow it,
after a file system event (`watch`); there is no periodic scan.
All pins of one resolved directory share its catalog.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from types import TracebackType
from typing import Self

from toolcell._paths import is_below
from toolcelld.catalog.catalog import Catalog
from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.describing.descriptions import Cache, Describe, DescriptionCache
from toolcelld.catalog.describing.relisting import Relisting
from toolcelld.catalog.directory import CatalogRules, Pin, WatchedDirectory
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.files.looks import look

# Files described concurrently: two processors are common, and importing also waits for the disk
DESCRIBING_MAX = 4
# Of `[daemon] open_wait` when a session opens: clients wait 15 s for the answer, and take a daemon that is late for dead
OPEN_SECONDS_MAX = 10.0


class DirectoryError(ValueError):
    """A directory that cannot be opened; the text says why."""


class CatalogRegistry:
    """All catalogs in use. An asynchronous context manager; leaving it cancels its tasks.

    `describe` returns a broken description for any fault of the file; an exception from it is a bug of the daemon.
    `tell` takes what the log of an MCP server has to say of a list of tools that is not taken.
    """

    def __init__(
        self,
        rules: CatalogRules,
        describe: Describe,
        cache: Cache,
        *,
        tell: Callable[[ToolFile, str], None] = lambda _, __: None,
        describing_max: int = DESCRIBING_MAX,
    ) -> None:
        self._rules = rules
        self._group = asyncio.TaskGroup()
        self._descriptions = DescriptionCache(self._group, describe, cache, describing_max)
        self.relisting = Relisting(self._group, self._known, self._replace, tell)
        """Takes the tools that a running MCP server has now; sessions hear of it where they differ from those that are known."""
        # Directories by resolved path; changed on the loop only, by `_watched` and by a directory that closes.
        self._directories: dict[str, WatchedDirectory] = {}
        # One counter for all directories, so that a generation number is never reused.
        self._generations = itertools.count(1)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for watched in list(self._directories.values()):
            watched.close()
        self._descriptions.close()
        self.relisting.close()
        await self._group.__aexit__(kind, error, traceback)

    @property
    def directories(self) -> tuple[str, ...]:
        """The resolved directories in use."""
        return tuple(self._directories)

    async def open(
        self,
        directory: str,
        *,
        within: str = "",
        on_change: Callable[[Catalog], object] | None = None,
        wait_seconds: float | None = None,
        at_once: bool = False,
    ) -> Pin:
        """Scan a directory and return a pin of its catalog; the caller closes the pin.

        Args:
            directory: An absolute path.
            within: What it resolves to has to lie in this directory, which is resolved as well; empty for anywhere.
            on_change: Called with every newer catalog after this method has returned.
            wait_seconds: How long to wait until every file is described; None takes `[daemon] open_wait`, up to
                `OPEN_SECONDS_MAX`.
            at_once: Whether to wait for the scan alone, and for no file to be described.

        Raises `DirectoryError`. When cancelled, it leaves no pin.
        """
        watched = self._watched(await look(directory, resolved, directory, within))
        pin = watched.pin()
        try:
            enough = None if at_once else watched.known
            if wait_seconds is None:
                wait_seconds = min(self._or_configured(None), OPEN_SECONDS_MAX)
            await watched.rescan(enough, wait_seconds)
        except BaseException:
            pin.close()
            raise
        if on_change is None:
            pin.advance()
        else:
            pin.subscribe(on_change)
        return pin

    async def refresh(self, directory: str, *, wait_seconds: float | None = None) -> Catalog:
        """Rescan a directory, broken files included; return its newest catalog after at most `wait_seconds`."""
        with closing(self._watched(await look(directory, resolved, directory)).pin()) as pin:
            return await self._refreshed(pin, wait_seconds)

    async def read(self, directory: str) -> None:
        """Rescan a directory, and return when its catalog is published; what is new is being described then.

        Raises `DirectoryError`.
        """
        with closing(self._watched(await look(directory, resolved, directory)).pin()) as pin:
            await pin.watched.read()

    async def with_tool(self, name: str, digests: Sequence[str]) -> frozenset[str]:
        """Return those of some digests whose files were described to have a tool, in whichever directory they lie."""
        found = await self._descriptions.cached(digests)
        return frozenset(
            digest for digest, each in found.items() if any(tool.name == name for tool in each.tools)
        )

    def keep(self, file: ToolFile, description: Description) -> None:
        """Keep the description of a file that no directory has yet, so that it is not described again when one has."""
        self._descriptions.replace(file, description)

    async def _known(self, file: ToolFile) -> Description | None:
        for watched in list(self._directories.values()):
            if (description := watched.description_of(file)) is not None:
                return description
        return (await self._descriptions.cached([file.digest])).get(file.digest)

    def _replace(self, file: ToolFile, description: Description) -> None:
        self._descriptions.replace(file, description)
        for watched in list(self._directories.values()):
            watched.redescribe(file, description)

    async def described(self, directory: str) -> None:
        """Wait until the files of a directory's last scan are described, at most `[daemon] open_wait`."""
        if (watched := self._directories.get(directory)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._or_configured(None)):
                    await watched.fresh.wait()

    async def describe_anew(self, directory: str, *, wait_seconds: float) -> None:
        """Rescan what is watched of a project after a change of the rules; what was being described under the old ones is described again.

        Args:
            directory: The project's, an absolute path.
            wait_seconds: How long to wait, for each of the two.
        """
        await self._descriptions.settle(wait_seconds)
        self._descriptions.forget_failures()
        await self.refresh_all(within=directory, wait_seconds=wait_seconds)

    async def refresh_all(self, *, within: str = "/", wait_seconds: float | None = None) -> list[Catalog]:
        """Rescan every directory in use that is another one or lies in it; return their newest catalogs."""
        with ExitStack() as pins:
            watched = [each for place, each in self._directories.items() if is_below(place, within)]
            pinned = [pins.enter_context(closing(each.pin())) for each in watched]
            return await asyncio.gather(*(self._refreshed(pin, wait_seconds) for pin in pinned))

    async def _refreshed(self, pin: Pin, wait_seconds: float | None) -> Catalog:
        await pin.watched.rescan(pin.watched.fresh, self._or_configured(wait_seconds))
        return pin.latest

    def _or_configured(self, wait_seconds: float | None) -> float:
        return self._rules.config().daemon.open_wait_seconds if wait_seconds is None else wait_seconds

    def _watched(self, directory: str) -> WatchedDirectory:
        watched = self._directories.get(directory)
        if watched is None:
            watched = self._directories[directory] = WatchedDirectory(
                directory,
                self._rules,
                self._group,
                self._descriptions,
                lambda: next(self._generations),
                lambda: self._directories.pop(directory, None),
            )
        return watched


def resolved(directory: str, within: str = "") -> str:
    """Return the resolved path of an existing directory, which lies in `within` if that is given. Raises `DirectoryError`."""
    if "\0" in directory or not os.path.isabs(directory):
        raise DirectoryError("the directory must be an absolute path")
    try:
        real = os.path.realpath(directory)
    except OSError as error:  # a link that may not be read, or is another file by then
        raise DirectoryError(f"{directory} cannot be found: {error.strerror}") from error
    if within and not is_below(real, os.path.realpath(within)):
        raise DirectoryError(f"{directory} leads out of {within}")
    if not os.path.isdir(real):
        raise DirectoryError(f"{directory} is not a directory; name one that exists")
    try:
        real.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(real).decode(errors="replace")
        raise DirectoryError(f"{directory} leads to {shown}, whose name is not UTF-8; rename it") from None
    return real
