"""The catalogs of all directories in use.

A directory is looked at when it is opened, when somebody asks, and, for sessions that follow it, when
the kernel tells of an edit (`watch.py`); never by the clock.
Everybody in one resolved directory shares its catalog, as long as one pin holds it; how it is
kept fresh is `shelf.py`, and that a file is described once, whoever needs it, `descriptions.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from types import TracebackType
from typing import Self

from toolcelld.catalog import Catalog
from toolcelld.config import Config
from toolcelld.descriptions import Cache, Describe, Descriptions
from toolcelld.shelf import Pin, Shelf

__all__ = ["OPEN_SECONDS_MAX", "Catalogs", "DirectoryError", "Pin"]

OPEN_SECONDS_MAX = 2.0  # an agent's start waits for this; what is not described by then comes as a change
DESCRIBING_MAX = (
    4  # files described side by side: two processors are common, and importing also waits for the disk
)


class DirectoryError(ValueError):
    """A directory that cannot have tools; the text says why."""


class Catalogs:
    """All catalogs in use. An asynchronous context manager: leaving it ends whatever runs for it.

    `describe` gives a broken description for whatever a file does; if it raises, that is our own failure.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        describe: Describe,
        cache: Cache,
        *,
        describing_max: int = DESCRIBING_MAX,
    ) -> None:
        self._config = config
        self._group = asyncio.TaskGroup()
        self._descriptions = Descriptions(self._group, describe, cache, describing_max)
        # The shelves in use, changed by `_shelf` and by a shelf that closes, on the loop only.
        self._shelves: dict[str, Shelf] = {}
        # One count for all directories: a number never comes twice, whatever was dropped meanwhile.
        self._generations = itertools.count(1)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for shelf in list(self._shelves.values()):
            shelf.close()
        self._descriptions.close()
        await self._group.__aexit__(kind, error, traceback)

    @property
    def directories(self) -> tuple[str, ...]:
        """The resolved directories in use."""
        return tuple(self._shelves)

    async def open(
        self,
        directory: str,
        *,
        on_change: Callable[[Catalog], object] | None = None,
        wait_seconds: float = OPEN_SECONDS_MAX,
    ) -> Pin:
        """Look at a directory and hold what it sees; close the pin when done.

        Waits until every file has a description, but at most `wait_seconds`. From then on `on_change` is
        called once with every newer catalog. Raises `DirectoryError`. Cancelled, it holds nothing.
        """
        shelf = self._shelf(await asyncio.to_thread(_resolved, directory))
        pin = shelf.pin()
        try:
            await shelf.look(shelf.known, wait_seconds)
        except BaseException:
            pin.close()
            raise
        pin.advance()
        pin.on_change = on_change
        return pin

    async def refresh(self, directory: str, *, wait_seconds: float = OPEN_SECONDS_MAX) -> Catalog:
        """Look at a directory again, its failures included, and return its newest catalog after at most that time."""
        pin = self._shelf(await asyncio.to_thread(_resolved, directory)).pin()
        try:
            return await self._refreshed(pin, wait_seconds)
        finally:
            pin.close()

    async def refresh_all(self, *, wait_seconds: float = OPEN_SECONDS_MAX) -> list[Catalog]:
        """Look at every directory in use again."""
        pins = [shelf.pin() for shelf in self._shelves.values()]
        try:
            return await asyncio.gather(*(self._refreshed(pin, wait_seconds) for pin in pins))
        finally:
            for pin in pins:
                pin.close()

    async def _refreshed(self, pin: Pin, wait_seconds: float) -> Catalog:
        await pin.shelf.look(pin.shelf.fresh, wait_seconds)
        return pin.latest

    def _shelf(self, directory: str) -> Shelf:
        shelf = self._shelves.get(directory)
        if shelf is None:
            shelf = self._shelves[directory] = Shelf(
                directory,
                self._config,
                self._group,
                self._descriptions,
                lambda: next(self._generations),
                lambda: self._shelves.pop(directory, None),
            )
        return shelf


def _resolved(directory: str) -> str:
    """The one name of a directory that exists."""
    if "\0" in directory or not os.path.isabs(directory):
        raise DirectoryError("the directory must be an absolute path")
    resolved = os.path.realpath(directory)
    if not os.path.isdir(resolved):
        raise DirectoryError(f"{directory} is not a directory; name one that exists")
    return resolved
