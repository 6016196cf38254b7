"""Cells that are built ahead of need: forked, confined to their scope, and waiting to be told what for.

Forking and warming a worker takes several times as long as loading a tool file into it, and none
of that depends on the tool. So a few blanks wait, and whoever takes one has another made behind
it. A blank costs two processes and some megabytes that they do not share with the zygote.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from toolcelld.cell.cell import Cell, Receiver
from toolcelld.cell.tmpdir import TemporaryDirectories
from toolcelld.cell.zygote import Zygote, ZygoteFailed
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import FailedMessage, HelloMessage, from_worker

__all__ = ["READY_MAX", "PreforkedCells"]

READY_MAX: Final = 2
"""Agents call tools side by side, seldom more than two that were never called before."""
MAKING_MAX: Final = 4
"""At the same time; more would only share the processors."""
RETRIES_MAX: Final = 2
"""In a row and at once, where nobody waits: a zygote that died is replaced by then."""
LATER_SECONDS_MAX: Final = 60.0
"""Between two tries after that, in doubling steps from a second: what the host cannot do costs next to nothing."""
HELLO_SECONDS_MAX: Final = 5.0
"""A worker says hello within some milliseconds; one that does not is not believed."""


class _Waiting(Receiver):
    """Hears the hello of a blank."""

    def __init__(self) -> None:
        self.hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_frame(self, frame: Frame) -> None:
        if self.hello.done():
            return
        try:
            message = from_worker(frame.header)
        except FrameError as error:
            self.on_broken(error)
            return
        match message:
            case HelloMessage():
                self.hello.set_result(None)
            case FailedMessage():
                self.hello.set_exception(ZygoteFailed(f"sandbox_setup_failed: {message.message}"))
            case _:
                self.on_broken(FrameError(f"a {message.type} message before hello"))

    def on_broken(self, error: FrameError) -> None:
        if not self.hello.done():
            self.hello.set_exception(ZygoteFailed(f"a new worker sent what is no frame: {error}"))

    def on_death(self, cell: Cell) -> None:
        if not self.hello.done():
            death = cell.ended.result()
            self.hello.set_exception(
                ZygoteFailed(f"a new worker ended ({death.cause()}): {death.stderr[-1000:]}")
            )


class PreforkedCells:
    """The blanks of one interpreter, all in namespaces of their own or none of them."""

    def __init__(
        self, runtime: Zygote, tasks: asyncio.TaskGroup, scratch: TemporaryDirectories, *, apart: bool
    ) -> None:
        self.runtime = runtime
        self.scratch = scratch
        self._apart = apart
        self._tasks = tasks
        # The mutable state: what is ready, who waits, and what is on its way to either.
        self._ready: deque[Cell] = deque()
        self._takers: deque[asyncio.Future[Cell]] = deque()
        self._making: set[asyncio.Task[bool]] = set()
        self._failures = 0  # in a row
        self._later: asyncio.TimerHandle | None = None  # when it is tried again
        self._closed = False

    @property
    def ready(self) -> int:
        """How many wait."""
        return len(self._ready)

    def prepare(self) -> None:
        """Have as many made as are waited for and shall be ready."""
        wanted = READY_MAX + len(self._takers) - len(self._ready)
        while not self._closed and len(self._making) < min(wanted, MAKING_MAX):
            task = self._tasks.create_task(self._make_one(), name="blank")
            self._making.add(task)
            task.add_done_callback(self._made)

    async def take(self, receiver: Receiver) -> Cell:
        """A blank, told to `receiver` from now on. Raises `ZygoteFailed`."""
        cell = self._take_ready()
        if cell is None:
            taker: asyncio.Future[Cell] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            self.prepare()
            try:
                cell = await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled() and taker.exception() is None:
                    self._ready.append(taker.result())
                raise
        cell.receiver = receiver
        self.prepare()
        return cell

    def _take_ready(self) -> Cell | None:
        while self._ready:
            cell = self._ready.popleft()
            if not cell.ended.done():
                return cell
        return None

    def _next_taker(self) -> asyncio.Future[Cell] | None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                return taker
        return None

    async def _make_one(self) -> bool:
        try:
            cell = await self._make()
        except ZygoteFailed as failure:
            if (taker := self._next_taker()) is not None:
                taker.set_exception(failure)
            return False
        if (taker := self._next_taker()) is not None:
            taker.set_result(cell)
        else:
            self._ready.append(cell)
        return True

    def _made(self, task: asyncio.Task[bool]) -> None:
        self._making.discard(task)
        failed = not task.cancelled() and task.exception() is None and not task.result()
        self._failures = self._failures + 1 if failed else 0
        # Also after a success: whoever took it before we heard of it counted it as on its way.
        if self._takers or self._failures <= RETRIES_MAX:
            self.prepare()
        elif self._later is None and not self._closed:  # what fails and is not waited for has time
            seconds = min(LATER_SECONDS_MAX, 2.0 ** (self._failures - RETRIES_MAX - 1))
            self._later = asyncio.get_running_loop().call_later(seconds, self._prepare_again)

    def _prepare_again(self) -> None:
        self._later = None
        self.prepare()

    async def _make(self) -> Cell:
        waiting = _Waiting()
        cell = await Cell.start(self.runtime, waiting, apart=self._apart)
        cell.ended.add_done_callback(lambda _: waiting.on_death(cell))
        try:
            async with asyncio.timeout(HELLO_SECONDS_MAX):
                await waiting.hello
        except TimeoutError:
            cell.end()
            await cell.ended
            raise ZygoteFailed(f"a new worker did not say hello within {HELLO_SECONDS_MAX:.0f} s") from None
        except BaseException:
            cell.end()
            await asyncio.shield(cell.ended)
            raise
        if self._closed:
            cell.end()
            await cell.ended
        return cell

    async def aclose(self) -> None:
        """End the blanks, those that are being made too."""
        self._closed = True
        if self._later is not None:
            self._later.cancel()
        while (taker := self._next_taker()) is not None:
            taker.set_exception(ZygoteFailed("the daemon is stopping"))
        if self._making:
            await asyncio.wait(self._making)
        for cell in self._ready:
            if not cell.ended.done():
                cell.end()
                await cell.ended
        self._ready.clear()
