"""Watches the tool directories of sessions that follow their tools.

inotify reports a change in one of the directories that tools come from, and the directory is read again. If a directory
of tools does not exist, its nearest existing ancestor is watched until it does. Every change of the set of watches is
followed by a reading, so that no edit is missed in between.

A call is to run what was saved before it, and the kernel queues an event before the editor's `close` or `rename` returns.
So `catch_up` looks into the queue for every call: one system call if nothing was edited. A call that finds an edit waits
for the next reading, which then begins at once; without a call, readings wait for an editor to finish, and rest.

Without a session that follows there are no watches. If the kernel has no watches left, the log says so, and edits are
seen at the next rescan that a client or an operator asks for. So they are in a file system that reports no changes, such
as NFS for those of another machine.

Why not `watchfiles`: each `awatch` takes an inotify instance (a user has 128) and one of anyio's 40 threads, wakes up
20 times a second, follows links out of the directory, a removed directory that comes back is no longer watched, and its
queue cannot be looked into. Why not `asyncinotify`: it reads the queue ahead of the code that handles the events, and a
call that comes in between would miss an edit.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import struct
import termios
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from toolcelld import linux
from toolcelld.catalog.discovery.digest import UNWATCHED
from toolcelld.catalog.discovery.sources import Source
from toolcelld.catalog.registry import DirectoryError
from toolcelld.config.schema import PROJECT
from toolcelld.files.looks import look

logger = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 0.1
"""An editor's save is several changes: a temporary file, its renaming, a backup."""
REST_FACTOR: Final = 5
"""Caps rescans at about a sixth of a processor: after a rescan, none starts for five times its duration."""
CALLED_REST_FACTOR: Final = 1
"""The same where a call waits: a file that is written without pause takes half a processor, and no call waits long."""
RETRY_SECONDS: Final = 1.0
"""Until a directory is looked at again whose sources cannot be told."""
PLACES_MAX: Final = 1024
"""Watched for one directory; the kernel gives a user some thousands in all."""
DEPTH_MAX: Final = 16
EVENTS_BYTES_MAX: Final = 16 * 1024
"""Events read at a time, about five hundred: less than a millisecond of the loop."""

# <linux/inotify.h>
IN_ATTRIB: Final = 0x4
IN_CLOSE_WRITE: Final = 0x8
IN_MOVE: Final = 0xC0
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
IN_Q_OVERFLOW: Final = 0x4000
IN_IGNORED: Final = 0x8000
IN_ONLYDIR: Final = 0x01000000
INTEGER: Final = struct.Struct("i")
NO_INTEGER: Final = bytes(INTEGER.size)
EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
CHANGES: Final = IN_CREATE | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE | IN_MOVE | IN_DELETE_SELF | IN_MOVE_SELF


@dataclass(slots=True)
class _Follower:
    """A directory that sessions follow."""

    sessions: int = 0
    edits: int = 1  # those that were heard of; at the beginning nothing has been read
    reading: int = 0  # those that the newest reading knows of
    read: int = 0  # those that the newest finished reading knows of
    waiting: list[tuple[int, asyncio.Future[None]]] = field(
        default_factory=list[tuple[int, asyncio.Future[None]]]
    )  # for so many to be read
    edited: asyncio.Event = field(default_factory=asyncio.Event)
    called: asyncio.Event = field(default_factory=asyncio.Event)  # a call waits for the next reading
    task: asyncio.Task[None] | None = None
    places: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])  # see `_places`

    def edit(self) -> None:
        """Note an edit."""
        self.edits += 1
        self.edited.set()

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is done when the edits so far have been read."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((self.edits, future))
        return future

    def begin(self) -> int:
        """A reading begins; return the edits that it knows of."""
        self.edited.clear()
        self.called.clear()
        self.reading = self.edits
        return self.edits

    def end(self, edits: int) -> None:
        """A reading that knows of so many edits is over."""
        self.read = max(self.read, edits)
        done = [future for wanted, future in self.waiting if wanted <= self.read]
        self.waiting = [(wanted, future) for wanted, future in self.waiting if wanted > self.read]
        for future in done:
            if not future.done():
                future.set_result(None)


class Watch:
    """The directories that sessions follow.

    Args:
        sources: Returns where the tools of a directory come from; called in a thread, as it blocks.
        read: Reads a directory; what is new in it is being described then.
        describe: Waits for that, for a bounded time.
        tasks: The group of the daemon.
    """

    def __init__(
        self,
        sources: Callable[[str], Sequence[Source]],
        read: Callable[[str], Awaitable[object]],
        describe: Callable[[str], Awaitable[object]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._sources = sources
        self._read = read
        self._describe = describe
        self._tasks = tasks
        # The mutable state: the followers, and while there are any, the inotify descriptor with its watches.
        self._followers: dict[str, _Follower] = {}
        self._kernel = -1
        self._watched: dict[str, int] = {}
        self._places: dict[int, set[str]] = {}  # by watch: a directory may have several names

    def follow(self, directory: str) -> None:
        """A session follows the tools of a directory from now on."""
        follower = self._followers.setdefault(directory, _Follower())
        follower.sessions += 1
        if follower.task is None:
            follower.task = self._tasks.create_task(
                self._keep_up(directory, follower), name=f"watch {directory}"
            )

    def leave(self, directory: str) -> None:
        """A session follows the tools of a directory no more."""
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
        for follower in list(self._followers.values()):
            follower.edit()

    def catch_up(self, directory: str) -> asyncio.Future[None] | None:
        """Return None if what was saved until now has been read, else a future that is done when it has been.

        The directory is one that is followed.
        """
        follower = self._followers[directory]
        if self._kernel >= 0:
            self._hear_queued(follower)
        if follower.read == follower.edits:
            return None
        if follower.reading < follower.edits:
            follower.called.set()
        return follower.wait()

    def _hear_queued(self, follower: _Follower) -> None:
        try:
            queued = _queued_bytes(self._kernel)
        except OSError as error:
            self._begin_anew(error)
            return
        if queued > EVENTS_BYTES_MAX:
            follower.edit()  # too much to read now, and hardly without an edit
        elif queued:
            self._hear()

    def look_again(self, directory: str) -> asyncio.Future[None]:
        """Return a future that is done when a directory has been read once more, after the time for an editor to finish."""
        follower = self._followers[directory]
        follower.edit()
        return follower.wait()

    async def _keep_up(self, directory: str, follower: _Follower) -> None:
        fails = False
        while True:
            edits = follower.begin()
            try:
                places = await look(directory, self._places_of, directory)
            except (OSError, ValueError) as error:
                if not fails:
                    logger.warning("edits below %s are not seen: %s; it is tried again", directory, error)
                fails = True
                follower.end(edits)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            fails = False
            if places != follower.places:  # files created before the watch caused no event: list it once more
                follower.places = places
                self._forget_places()
                if all(map(self._watch, places)):
                    continue
                logger.warning("edits below %s are not seen before the next rescan", directory)
            await self._read_and_rest(directory, follower, edits)

    def _places_of(self, directory: str) -> dict[str, set[str]]:
        return _places(self._sources(directory))

    async def _read_and_rest(self, directory: str, follower: _Follower, edits: int) -> None:
        """Read a directory, wait for an edit, and then for an editor to finish, or for a call."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        with suppress(DirectoryError):  # it is gone, and may come back
            await self._read(directory)
            follower.end(edits)
            await _either(self._describe(directory), follower.called.wait())
        follower.end(edits)
        ended = loop.time()
        took = ended - began
        await follower.edited.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(SETTLE_SECONDS, REST_FACTOR * took)):
                await follower.called.wait()
                await asyncio.sleep(max(0.0, ended + CALLED_REST_FACTOR * took - loop.time()))

    def _watch(self, place: str) -> bool:
        """Have the kernel watch a place; False where it has no watch left."""
        if place in self._watched:
            return True
        try:
            if self._kernel < 0:
                self._kernel = linux.inotify()
                asyncio.get_running_loop().add_reader(self._kernel, self._hear)
            watch = linux.watch(self._kernel, place, CHANGES | IN_ONLYDIR)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return True  # it went meanwhile, which whatever is above it tells; or it is not ours to read
        except OSError as error:
            logger.warning("the kernel does not watch %s: %s", place, error.strerror)
            return False
        self._watched[place] = watch
        self._places.setdefault(watch, set()).add(place)
        return True

    def _forget_places(self) -> None:
        """Remove the watches that no follower needs."""
        needed = {place for follower in self._followers.values() for place in follower.places}
        self._forget(self._watched.keys() - needed)

    def _forget(self, places: Collection[str]) -> None:
        for place in places:
            watch = self._watched.pop(place)
            named = self._places.get(watch, set())
            named.discard(place)
            if not named:
                self._places.pop(watch, None)
                with suppress(OSError):  # it went with its directory
                    linux.unwatch(self._kernel, watch)

    def _begin_anew(self, why: object) -> None:
        """Give up all watches, because not all events can be had of them; every follower sets up new ones."""
        logger.warning("the directories of tools are watched anew: %s", why)
        self._close()
        for follower in list(self._followers.values()):
            follower.places = {}
            follower.edit()

    def _close(self) -> None:
        if self._kernel >= 0:
            asyncio.get_running_loop().remove_reader(self._kernel)
            with suppress(OSError):
                os.close(self._kernel)
        self._kernel = -1
        self._watched.clear()
        self._places.clear()

    def _hear(self) -> None:
        """Handle the oldest events of the kernel's queue, as many as are read at a time."""
        try:
            events = os.read(self._kernel, EVENTS_BYTES_MAX)
        except BlockingIOError:
            return  # a call was quicker
        except OSError as error:  # the loop would call again at once, without an end
            self._begin_anew(error)
            return
        start = 0
        while start < len(events):
            watch, mask, _, length = EVENT.unpack_from(events, start)
            name = events[start + EVENT.size : start + EVENT.size + length]
            start += EVENT.size + length
            if mask & IN_Q_OVERFLOW:
                # Among the lost events may be that a directory has gone, and with it its watch.
                self._begin_anew("there were more edits than the kernel queues")
                return
            for place in tuple(self._places.get(watch, ())):
                self._changed(place, os.fsdecode(name.rstrip(b"\0")))
                if mask & (IN_IGNORED | IN_MOVE_SELF):
                    self._lose(place)

    def _changed(self, place: str, name: str) -> None:
        """Something has changed in a watched place; without a name the place itself."""
        if name in UNWATCHED:
            return
        for follower in list(self._followers.values()):
            awaited = follower.places.get(place)
            if awaited is not None and (not awaited or not name or name in awaited):
                follower.edit()

    def _lose(self, place: str) -> None:
        """A watched place has gone; should it be there again, it is watched again, with what is below it."""
        gone = {each for each in self._watched if each == place or each.startswith(f"{place}/")}
        self._forget(gone)
        for follower in list(self._followers.values()):
            follower.places = {kept: names for kept, names in follower.places.items() if kept not in gone}
            follower.edit()


def _queued_bytes(kernel: int) -> int:
    count: int = INTEGER.unpack(fcntl.ioctl(kernel, termios.FIONREAD, NO_INTEGER))[0]
    return count


async def _either(first: Awaitable[object], second: Awaitable[object]) -> None:
    """Wait until one of two is done; the other one is cancelled."""
    tasks = {asyncio.ensure_future(each) for each in (first, second)}  # awaited below
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _places(sources: Sequence[Source]) -> dict[str, set[str]]:
    """What to watch: the directories of tools and those below; and for one that is not there, the name that is to come
    in the nearest one above it. The user's own tools may be links, and then the file is watched that one leads to."""
    places: dict[str, set[str]] = {}
    for source in sources:
        if source.beside:
            _await(places, *os.path.split(source.beside))
        for directory in source.places:
            here, awaited = _nearest(os.path.realpath(directory))
            if awaited:
                _await(places, here, awaited)
                continue
            for below in islice(_below(here, 0), PLACES_MAX - len(places)):
                places[below] = set()
            for target in _linked(here) if source.name != PROJECT else ():
                if len(places) < PLACES_MAX:
                    _await(places, *os.path.split(target))
    return places


def _await(places: dict[str, set[str]], place: str, name: str) -> None:
    """Add a name in a place, unless all of it is watched already."""
    if places.get(place, True):
        places.setdefault(place, set()).add(name)


def _nearest(path: str) -> tuple[str, str]:
    """The directory itself, else the nearest one above that is there, and the name in it that is to come."""
    here: str = path
    awaited: str = ""
    while not os.path.isdir(here) and here != "/":  # unlike `Path.is_dir`, it raises for no path
        here, awaited = os.path.split(here)
    return here, awaited


def _below(directory: str, depth: int) -> Iterator[str]:
    """A directory and those below it, links not followed."""
    yield directory
    if depth == DEPTH_MAX:
        return
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name not in UNWATCHED and entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, depth + 1)


def _linked(directory: str) -> Iterator[str]:
    """The files that links in a directory lead to."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            # Not `entry.is_file`, which raises for a loop of links and would end the listing.
            if entry.is_symlink() and os.path.isfile(entry.path):
                yield os.path.realpath(entry.path)
