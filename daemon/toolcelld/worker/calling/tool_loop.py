"""The event loop of asynchronous tools: one for the worker, in its main thread, with a pool of threads for each call.

What a call leaves on it, and which threads are left, is counted when the call has ended.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import thread as pools
from contextvars import Context
from typing import Any, Final, TypeVar

from toolcelld.worker.abort import Abortable

T = TypeVar("T")

ENDING_THREADS: Final = ("toolcell-pool", "AnyIO worker thread", "waitpid-", "asyncio-waitpid-")
"""How the names of threads begin that end by themselves: our pool's, anyio's, which end with their task, and asyncio's that
wait for a child, until 3.12."""
THREAD_JOIN_SECONDS: Final = 0.05
"""How long to wait for such a thread before it counts as a leftover of the call."""
QUEUES: Final[Any] = pools._threads_queues  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage, reportUnknownMemberType]
WORK: Final[Any] = pools._worker  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage, reportUnknownMemberType]
"""The queue of each thread of a pool, and the function that it runs."""
IDLE_LOOK_SECONDS: Final = 0.0002
"""Between two looks at a thread that may still be at work."""


class ToolLoop:
    """The loop; it is made when the first tool needs it.

    Args:
        abortable: Is given what cancels the task that runs.
    """

    def __init__(self, abortable: Abortable) -> None:
        self._abortable = abortable
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: _CallPool | None = None
        self._tasks_created = 0  # in this call

    def complete(self, awaitable: Any, variables: Context | None = None) -> Any:
        """Run an awaitable of the tool on the worker's loop in the main thread, so that an abort cancels it.

        Args:
            variables: The context variables of its task; a copy of the current ones by default.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        if self._pool is None:
            self._pool = _CallPool(thread_name_prefix="toolcell-pool")
        loop = self._loop
        # Each of them may be another one since the last call.
        loop.set_default_executor(self._pool)
        loop.set_exception_handler(None)
        loop.set_task_factory(self._make_task)
        task = loop.create_task(_await_and_stop(awaitable, loop.stop), context=variables)
        # Through the loop, so that the task has started when it is cancelled, and runs its `finally`.
        self._abortable.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            while not task.done():
                loop.run_forever()
            return task.result()
        finally:
            self._abortable.cancel = None

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        self._tasks_created += 1
        return asyncio.Task(work, loop=loop, **options)

    def count_leftovers(self) -> int:
        """Return the number of threads and tasks that are still running after their call."""
        created, self._tasks_created = self._tasks_created, 0
        # The first task is the tool's own, which is done. `all_tasks` takes longer than most calls, so it is skipped.
        tasks = 0
        loop = self._loop
        if loop is not None and (created > 1 or loop.get_task_factory() != self._make_task):
            tasks = len(asyncio.all_tasks(loop))
        if self._pool is not None and self._pool.used:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        if threading.active_count() == 1:
            return tasks
        if loop is not None and not tasks:  # what ends with the task is told by the loop
            loop.call_soon(loop.stop)
            loop.run_forever()
        return tasks + sum(map(_goes_on, threading.enumerate())) - 1


def _goes_on(thread: threading.Thread) -> bool:
    """Whether a thread does something after its call; one that waits in a `ThreadPoolExecutor` for its next work does not."""
    if thread.name.startswith(ENDING_THREADS):
        thread.join(THREAD_JOIN_SECONDS)
        return thread.is_alive()
    queue = QUEUES.get(thread)
    if queue is None:
        return True
    # The last of its work has its result a moment before the thread waits for more.
    deadline = time.monotonic() + THREAD_JOIN_SECONDS
    while not (idle := _waits_for_work(thread, queue)) and time.monotonic() < deadline:
        time.sleep(IDLE_LOOK_SECONDS)
    return not idle


def _waits_for_work(thread: threading.Thread, queue: Any) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]  # there is no other way to see a thread wait
    if frame is None:
        return True  # it has ended
    # The innermost frame is that of `_worker` while it waits for its queue, in C; `work_item` is set until that is done.
    waits = frame.f_code is WORK.__code__ and frame.f_locals.get("work_item") is None
    return waits and bool(queue.empty())


class _CallPool(ThreadPoolExecutor):
    """The thread pool of `asyncio.to_thread`, one for each call that uses it, so that its idle threads can be ended."""

    used = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self.used = True
        return super().submit(fn, *args, **kwargs)


async def _await_and_stop(awaitable: Any, stop: Callable[[], None]) -> Any:
    """Await, then stop the loop. `run_until_complete` needs one more iteration, as long as a small tool takes."""
    try:
        return await awaitable
    finally:
        stop()
