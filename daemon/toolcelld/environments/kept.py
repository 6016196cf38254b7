"""Removes environments and packages that no tool file asks for any more and that have not been used for some time.

    environments/environments/NAME   of tools in Python, made by uv
    packages/NAME                    of tools in TypeScript and JavaScript, made by bun or npm

Each use is a row in the store: the directory, the file that asked for it, and the digest of what the file said. As a
daemon notes the directories of its workers before every look, a row that is older than two looks is of no worker of any
daemon. A directory is renamed before it is removed, in one step of the loop, as a use is noted: who comes later finds it
missing and builds it again.

Their content was written by strangers: nothing of it is read, links are not followed, and what has another name or
another owner than the daemon would give it stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from toolcelld.environments.packages import installed
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular
from toolcelld.store import Store

logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["environment", "packages"]
Place: TypeAlias = tuple[Kind, str]
"""A directory: its kind and its name."""
Row: TypeAlias = tuple[Kind, str, str, str, float]  # kind, name, source, digest, used_at

DIRECTORIES: Final[dict[Kind, str]] = {"environment": "environments/environments", "packages": "packages"}
NAME: Final = re.compile(r"[0-9a-f]{32}")
REMOVED: Final = "removed-"
"""How the name of a directory begins that is being removed."""
FIRST_SECONDS: Final = 60.0
"""After the start, which has other things to do; a daemon that a client started may end soon."""
SWEEP_SECONDS: Final = 3600.0
RECENT_SECONDS: Final = 2 * SWEEP_SECONDS
"""What was used within this time may be in use by another daemon."""
NOTED_MAX: Final = 10_000
SOURCE_BYTES_MAX: Final = 16 * 2**20
ENTRIES_MAX: Final = 2_000_000
"""Of which the sizes are added; ten large installations have a tenth."""


@dataclass(frozen=True, slots=True)
class KeptDirectory:
    """A directory that is kept."""

    path: str
    used_at: float
    unneeded: bool  # no file asks for it, and no worker has used it lately
    size_bytes: int = 0


class Kept:
    """What is kept below a state directory.

    Args:
        directory: The state directory.
        store: Has the rows of all daemons.
        in_use: Returns the directories that workers of this daemon have.
        remove: Removes a directory that may have anything in it; blocks.
        tidy: Called after directories were removed.
        now: Returns the time in seconds since the epoch.
    """

    def __init__(
        self,
        directory: str,
        store: Store,
        *,
        in_use: Callable[[], Iterable[Place]],
        remove: Callable[[str], None],
        tidy: Callable[[], Awaitable[None]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._store = store
        self._in_use = in_use
        self._remove = remove
        self._tidy = tidy
        self._now = now
        # The mutable state, used on the loop only: when each directory was used, and which rows were written when.
        self._used: dict[Place, float] = {}
        self._noted: dict[tuple[Place, str, str], float] = {}

    def used(self, place: Place, source: str, content: bytes = b"") -> None:
        """Note that a worker gets a directory now.

        Args:
            source: What asked for it: a tool file, or the directory of a `package.json`.
            content: What the tool file says.
        """
        now = self._now()
        self._used[place] = now
        digest = _digest(content) if content else ""
        key = place, source, digest
        if now - self._noted.get(key, 0.0) < SWEEP_SECONDS:
            return
        if len(self._noted) >= NOTED_MAX:
            self._noted.clear()
        self._noted[key] = now
        self._store.write("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?)", [*place, source, digest, now])

    async def look(self) -> list[KeptDirectory]:
        """Return what is there, with its sizes."""
        rows = await self._rows()
        return await asyncio.to_thread(self._usages, rows, self._now() - RECENT_SECONDS, True)

    async def remove(self, seconds: float) -> list[KeptDirectory]:
        """Remove what no file asks for and what has not been used for so many seconds; return it.

        Args:
            seconds: At least `RECENT_SECONDS`.
        """
        for place in set(self._in_use()):
            self._used[place] = self._now()
            self._store.write(
                "UPDATE kept SET used_at = ? WHERE kind = ? AND name = ?", [self._now(), *place]
            )
        rows = await self._rows()
        oldest = self._now() - max(seconds, RECENT_SECONDS)
        found = await asyncio.to_thread(self._usages, rows, oldest, False)
        renamed: list[tuple[KeptDirectory, str]] = []
        for usage in found:
            place = self._place_of(usage.path)
            if usage.unneeded and self._used.get(place, 0.0) < oldest:  # not since the rows were read
                directory, name = os.path.split(usage.path)
                hidden = os.path.join(directory, REMOVED + name)
                with contextlib.suppress(OSError):
                    # Another daemon was first, or the last time left some of it
                    os.rename(usage.path, hidden)
                    renamed.append((usage, hidden))
                    self._used.pop(place, None)
                    self._store.write("DELETE FROM kept WHERE kind = ? AND name = ?", place)
        self._store.write("DELETE FROM kept WHERE used_at < ?", [oldest - 366 * 86_400.0])
        removed = await asyncio.to_thread(self._removed, renamed)
        if removed:
            await self._tidy()
        return removed

    async def sweep_for_ever(self, keep_seconds: Callable[[], float | None]) -> None:
        """Remove what is not needed, soon and then every hour, until cancelled; None keeps everything."""
        wait_seconds = FIRST_SECONDS
        while True:
            await asyncio.sleep(wait_seconds)
            wait_seconds = SWEEP_SECONDS
            if (seconds := keep_seconds()) is None:
                continue
            try:
                for usage in await self.remove(seconds):
                    logger.info("%s was not needed any more and was removed.", usage.path)
            except OSError as error:
                logger.warning("What is not needed any more was not removed: %s.", error)

    async def _rows(self) -> list[Row]:
        rows = await self._store.read("SELECT kind, name, source, digest, used_at FROM kept")
        return cast("list[Row]", rows)

    def _place_of(self, path: str) -> Place:
        kind: Kind = "packages" if os.path.dirname(path) == self._path("packages") else "environment"
        return kind, os.path.basename(path)

    def _path(self, kind: Kind, name: str = "") -> str:
        return os.path.join(self._directory, DIRECTORIES[kind], name).rstrip("/")

    # The methods below block.

    def _usages(self, rows: Sequence[Row], oldest: float, sized: bool) -> list[KeptDirectory]:
        usages: list[KeptDirectory] = []
        sizes = _Sizes()
        for kind in DIRECTORIES:
            for name in _names(self._path(kind)):
                path = self._path(kind, name)
                of_it = [row for row in rows if row[:2] == (kind, name)]
                try:
                    used_at = max((row[4] for row in of_it), default=None) or os.lstat(path).st_ctime
                except OSError:
                    continue
                unneeded = used_at < oldest and not any(self._asks(*row[:4]) for row in of_it)
                usages.append(
                    KeptDirectory(path, used_at, unneeded, sizes.of(path) if sized or unneeded else 0)
                )
        return usages

    def _asks(self, kind: Kind, name: str, source: str, digest: str) -> bool:
        if kind == "packages":
            return os.path.basename(installed(self._path(kind), source, os.open)) == name
        try:
            return _digest(read_regular(source, SOURCE_BYTES_MAX)) == digest
        except (OSError, NotRegularError, TooLargeError):
            return False

    def _removed(self, renamed: Sequence[tuple[KeptDirectory, str]]) -> list[KeptDirectory]:
        for kind in DIRECTORIES:
            directory = self._path(kind)
            for name in _names(directory, REMOVED):  # of a daemon that was killed, too
                self._remove(os.path.join(directory, name))
        return [usage for usage, hidden in renamed if not os.path.lexists(hidden)]


class _Sizes:
    """The bytes of directories on disk; a file that several have counts once."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def of(self, path: str) -> int:
        size_bytes, waiting = 0, [path]
        while waiting and len(self._seen) < ENTRIES_MAX:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if (key := (status.st_dev, status.st_ino)) not in self._seen:
                        self._seen.add(key)
                        size_bytes += status.st_blocks * 512
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
        return size_bytes


def _names(directory: str, prefix: str = "") -> list[str]:
    """Return the directories of our own in a directory that have a name as ours have, after a prefix."""
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and NAME.fullmatch(entry.name[len(prefix) :]):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                    names.append(entry.name)
    return sorted(names)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
