"""Watches the tool directories of sessions that follow their tools.

inotify reports a change in one of the directories that tools come from, and the directory is rescanned. If a directory
of tools does not exist, its nearest existing ancestor is watched until it does. Every change of the set of watches is
followed by a rescan, so that no edit is missed in between.

Without a session that follows there are no watches. If the kernel has no watches left, the log says so, and edits are
seen at the next rescan that a client or an operator asks for.

Why not `watchfiles`: each `awatch` takes an inotify instance (a user has 128) and one of anyio's 40 threads, wakes up
20 times a second, follows links out of the directory, and a removed directory that comes back is no longer watched.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolcelld.catalog.digest import UNWATCHED
from toolcelld.catalog.registry import DirectoryError
from toolcelld.catalog.sources import Source

if TYPE_CHECKING:
    from asyncinotify import Event, Inotify
    from asyncinotify import Watch as KernelWatch

__all__ = ["Watch"]

logger = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 0.1
"""An editor's save is several changes: a temporary file, its renaming, a backup."""
REST_FACTOR: Final = 5
"""Caps rescans at about a sixth of a processor: after a rescan, none starts for five times its duration."""
PLACES_MAX: Final = 1024
"""Watched for one directory; the kernel gives a user some thousands in all."""
DEPTH_MAX: Final = 16


@dataclass(slots=True)
class _Follower:
    """A directory that sessions follow."""

    sessions: int = 0
    edited: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    places: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])  # see `_places`


class Watch:
    """The directories that sessions follow. `look` looks at one of them."""

    def __init__(
        self,
        sources: Callable[[str], Sequence[Source]],
        look: Callable[[str], Awaitable[object]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._sources = sources
        self._look = look
        self._tasks = tasks
        # The mutable state: the followers, and while there are any, the inotify instance with its watches.
        self._followers: dict[str, _Follower] = {}
        self._kernel: Inotify | None = None
        self._listening: asyncio.Task[None] | None = None
        self._watched: dict[str, KernelWatch] = {}

    def follow(self, directory: str) -> None:
        """A session follows the tools of a directory from now on."""
        follower = self._followers.setdefault(directory, _Follower())
        follower.sessions += 1
        if follower.task is None:
            follower.task = self._tasks.create_task(
                self._keep_up(directory, follower), name=f"watch {directory}"
            )

    def leave(self, directory: str) -> None:
        """It does no more."""
        follower = self._followers[directory]
        follower.sessions -= 1
        if follower.sessions == 0:
            del self._followers[directory]
            if follower.task is not None:
                follower.task.cancel()
            self._forget_places()
            if not self._followers:
                self._close()

    def renew(self) -> None:
        """Look at all of them again; the configuration may name other sources."""
        for follower in self._followers.values():
            follower.edited.set()

    async def _keep_up(self, directory: str, follower: _Follower) -> None:
        loop = asyncio.get_running_loop()
        while True:
            follower.edited.clear()
            places = await asyncio.to_thread(_places, self._sources(directory))
            if places != follower.places:  # files created before the watch caused no event: list it once more
                follower.places = places
                self._forget_places()
                if all(map(self._watch, places)):
                    continue
                logger.warning("edits below %s are not seen before the next rescan", directory)
            began = loop.time()
            with suppress(DirectoryError):  # it is gone, and may come back
                await self._look(directory)
            took = loop.time() - began
            await follower.edited.wait()
            await asyncio.sleep(max(SETTLE_SECONDS, REST_FACTOR * took))

    def _watch(self, place: str) -> bool:
        """Have the kernel watch a place; False where it has no watch left."""
        if place in self._watched:
            return True
        from asyncinotify import Inotify, Mask

        changes = Mask.CREATE | Mask.CLOSE_WRITE | Mask.ATTRIB | Mask.DELETE | Mask.MOVE
        try:
            if self._kernel is None:
                self._kernel = Inotify()
                self._listening = self._tasks.create_task(self._listen(self._kernel), name="watch")
            mask = changes | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR
            watch = self._kernel.add_watch(place, mask)  # pyright: ignore[reportUnknownMemberType]  its PathLike
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return True  # it went meanwhile, which whatever is above it tells; or it is not ours to read
        except OSError as error:
            logger.warning("the kernel does not watch %s: %s", place, error.strerror)
            return False
        self._watched[place] = watch
        return True

    def _forget_places(self) -> None:
        """Remove the watches that no follower needs."""
        needed = {place for follower in self._followers.values() for place in follower.places}
        for place in self._watched.keys() - needed:
            watch = self._watched.pop(place)
            if self._kernel is not None:
                with suppress(OSError):  # it went with its directory
                    self._kernel.rm_watch(watch)

    def _close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()  # it closes the inotify descriptor when it has stopped reading
        self._kernel = self._listening = None
        self._watched.clear()

    async def _listen(self, kernel: Inotify) -> None:
        from asyncinotify import Mask

        with kernel:
            while True:
                event = await kernel.get()
                if Mask.Q_OVERFLOW in event.mask:
                    self.renew()
                elif event.watch is not None:
                    self._hear(event, event.watch, gone=Mask.IGNORED in event.mask)

    def _hear(self, event: Event, watch: KernelWatch, *, gone: bool) -> None:
        place, name = str(watch.path), str(event.name or "")
        if gone and self._watched.get(place) is watch:
            del self._watched[place]
            for follower in self._followers.values():  # should it be there again, it is watched again
                follower.places = {kept: names for kept, names in follower.places.items() if kept != place}
                follower.edited.set()
        if name in UNWATCHED:
            return
        for follower in self._followers.values():
            awaited = follower.places.get(place)
            if awaited is not None and (not awaited or not name or name in awaited):
                follower.edited.set()


def _places(sources: Sequence[Source]) -> dict[str, set[str]]:
    """What to watch: the directories of tools and those below; and for one that is not there, the name that is to come
    in the nearest one above it."""
    places: dict[str, set[str]] = {}
    for source in sources:
        for directory in source.places:
            here, awaited = _nearest(os.path.realpath(directory))
            if awaited:
                if places.get(here, True):  # else all of it is watched already
                    places.setdefault(here, set()).add(awaited)
                continue
            for below in islice(_below(here, 0), PLACES_MAX - len(places)):
                places[below] = set()
    return places


def _nearest(path: str) -> tuple[str, str]:
    """The directory itself, else the nearest one above that is there, and the name in it that is to come."""
    here, awaited = Path(path), ""
    while not here.is_dir() and here.name:
        here, awaited = here.parent, here.name
    return str(here), awaited


def _below(directory: str, depth: int) -> Iterator[str]:
    """A directory and those below it, links not followed."""
    yield directory
    if depth == DEPTH_MAX:
        return
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name not in UNWATCHED and entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, depth + 1)
