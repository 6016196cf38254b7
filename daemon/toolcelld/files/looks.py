"""Runs what blocks on a project's file system, in threads of its own and for one project one at a time.

What a project contains decides how long that takes: a directory of a million entries, an index of git of 16 MiB, a file
system of another machine. So its looks queue behind each other and not before those of other projects, and the threads
that everything else uses stay free. A look that takes long gives its place back and goes on in a slow one, so that many
projects whose looks take long keep those of others waiting for the time of one prompt look.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

PROMPT_MAX: Final = 8
"""Projects that are looked at at the same time, without those whose looks take long."""
SLOW_MAX: Final = 8
"""Looks beside them that take long. Where there are more, each keeps its prompt place until a slow one is free."""
PROMPT_SECONDS: Final = 0.02
"""Most looks take some milliseconds."""
THREADS: Final = PROMPT_MAX + SLOW_MAX


class _Turns:
    """Who has a prompt place and who a slow one, and who waits for either, in order."""

    def __init__(self) -> None:
        self._prompt_free, self._slow_free = PROMPT_MAX, SLOW_MAX
        self._coming: deque[asyncio.Future[None]] = deque()
        self._late: dict[asyncio.Future[Any], None] = {}  # looks that wait for a slow place
        self._slow: set[asyncio.Future[Any]] = set()

    async def take(self) -> None:
        """Wait for a prompt place."""
        if self._prompt_free:
            self._prompt_free -= 1
            return
        coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._coming.append(coming)
        try:
            await coming
        except asyncio.CancelledError:
            if coming.done() and not coming.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Give a prompt place to who came first."""
        while self._coming:
            if not (coming := self._coming.popleft()).done():
                coming.set_result(None)
                return
        self._prompt_free += 1

    def late(self, running: asyncio.Future[Any]) -> None:
        """Move a look that takes long to a slow place, now or when one is free."""
        if self._slow_free:
            self._slow_free -= 1
            self._slow.add(running)
            self.give_back()
        else:
            self._late[running] = None

    def ended(self, running: asyncio.Future[Any]) -> None:
        """Give the place of a look that has ended to who waits for it."""
        if running not in self._slow:
            self._late.pop(running, None)
            self.give_back()
            return
        self._slow.remove(running)
        self._slow_free += 1
        if self._late:
            first = next(iter(self._late))
            del self._late[first]
            self.late(first)


_threads: Final = ThreadPoolExecutor(THREADS, "look")
_places: Final = _Turns()
_turns: Final[WeakValueDictionary[str, asyncio.Lock]] = WeakValueDictionary()
"""Of the directories that are being looked at."""


async def look(directory: str, work: Callable[..., T], *arguments: object) -> T:
    """Run what looks at a directory, after what looks at it already. A look that nobody waits for any more keeps its turn.

    Args:
        directory: The directory of the session or the project.
        work: What blocks.
        *arguments: For `work`.
    """
    loop = asyncio.get_running_loop()
    turn = _turns.setdefault(directory, asyncio.Lock())
    await turn.acquire()
    try:
        await _places.take()
        try:
            running = loop.run_in_executor(_threads, work, *arguments)
        except BaseException:
            _places.give_back()
            raise
    except BaseException:
        turn.release()
        raise
    late = loop.call_later(PROMPT_SECONDS, _places.late, running)

    def end(_: object) -> None:
        late.cancel()
        _places.ended(running)
        turn.release()

    running.add_done_callback(end)
    return await asyncio.shield(running)


def start() -> None:
    """Start all threads, as `started` does."""
    started(_threads, THREADS)


def started(threads: ThreadPoolExecutor, count: int) -> ThreadPoolExecutor:
    """Return an executor all of whose threads run: one more cannot be started where the user has no process left.

    Raises:
        RuntimeError: They cannot be started.
    """
    together = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            threads.submit(together.wait)  # none is idle until all are there, so each begins another one
        together.wait()
    except BaseException:
        together.abort()
        raise
    return threads
