"""Runs what blocks on a project's file system, in threads of its own and for one project one at a time.

What a project contains decides how long that takes: a directory of a million entries, an index of git of 16 MiB, a file
system of another machine. So its looks queue behind each other and not before those of other projects, and the threads
that everything else uses stay free.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar
from weakref import WeakValueDictionary

__all__ = ["THREADS", "look", "start", "started"]

T = TypeVar("T")

THREADS: Final = 8
"""Projects that are looked at at the same time."""

_threads: Final = ThreadPoolExecutor(THREADS, "look")
_turns: Final[WeakValueDictionary[str, asyncio.Lock]] = WeakValueDictionary()
"""Of the directories that are being looked at."""


async def look(directory: str, work: Callable[..., T], *arguments: object) -> T:
    """Run what looks at a directory, after what looks at it already. A look that nobody waits for any more keeps its turn.

    Args:
        directory: The directory of the session or the project.
        work: What blocks.
        *arguments: For `work`.
    """
    turn = _turns.setdefault(directory, asyncio.Lock())
    await turn.acquire()
    try:
        running = asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)
    except BaseException:
        turn.release()
        raise
    running.add_done_callback(lambda _: turn.release())
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
