"""Preforked cells: forked ahead of need, confined to their Landlock scope, and not yet configured for a tool.

Forking and warming a worker takes several times as long as loading a tool file into it, and does not depend on the
tool. So a few preforked cells are kept ready, and some time after one was taken another one is forked. A preforked cell
costs two processes and a few megabytes that they do not share with the zygote.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from toolcelld.cell.cell import Cell, Receiver
from toolcelld.cell.tmpdir import TemporaryDirectories
from toolcelld.cell.zygote import Zygote, ZygoteEnded, ZygoteFailed
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import FailedMessage, HelloMessage, from_worker
from toolcelld.sandbox.policy import Enclosure

logger = logging.getLogger(__name__)

READY_MAX: Final = 2
"""Agents run tools in parallel, but rarely need more than two new workers at the same time."""
FORKING_MAX: Final = 4
"""Cells that are forked at the same time; more would only compete for the processors."""
REFILL_SECONDS: Final = 0.03
"""After a cell was taken: one that is forked at once competes for the processors with the worker that took it."""
RETRIES_MAX: Final = 2
"""Immediate retries in a row while no start waits for a cell; a crashed zygote is replaced by then."""
RETRY_SECONDS_MAX: Final = 60.0
"""The longest wait between later retries, which doubles from one second, so that a permanent failure costs little."""
HELLO_SECONDS_MAX: Final = 20.0
"""A worker sends its hello within milliseconds, and within seconds where twenty processes want each processor, as those
of cells have a lower priority. One that ends before is noticed at once. After this time its cell is ended."""


class _HelloReceiver(Receiver):
    """Receives the hello of a preforked cell."""

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
            self.hello.set_exception(ZygoteFailed(f"a new worker sent an invalid frame: {error}"))

    def on_exit(self, cell: Cell) -> None:
        if not self.hello.done():
            cell_exit = cell.ended.result()
            self.hello.set_exception(
                ZygoteFailed(f"a new worker ended ({cell_exit.cause()}): {cell_exit.stderr[-1000:]}")
            )


class PreforkedCells:
    """The preforked cells of one kind.

    Args:
        zygote: Forks the cells.
        tasks: Runs the tasks that start them.
        tmpdirs: Where workers that take a cell make their temporary directories.
        enclosure: What the cells are going to be. Few are "none", so that none of these is kept ready.
        host_network: Whether strict cells use the network of the host; False by default. Nor are these.
    """

    def __init__(
        self,
        zygote: Zygote,
        tasks: asyncio.TaskGroup,
        tmpdirs: TemporaryDirectories,
        *,
        enclosure: Enclosure,
        host_network: bool = False,
    ) -> None:
        self.zygote = zygote
        self.tmpdirs = tmpdirs
        self._enclosure: Enclosure = enclosure
        self._host_network = host_network
        self._ready_max = 0 if host_network or enclosure == "none" else READY_MAX
        self._tasks = tasks
        # The mutable state: cells that are ready, starts that wait for one, and cells that are being forked.
        self._ready: deque[Cell] = deque()
        self._waiters: deque[asyncio.Future[Cell]] = deque()
        self._forking: set[asyncio.Task[bool]] = set()
        self._failures = 0  # in a row
        self._retry_timer: asyncio.TimerHandle | None = None  # the next retry
        self._refill_timer: asyncio.TimerHandle | None = None  # in place of a cell that was taken
        self._closed = False

    @property
    def ready(self) -> int:
        """The number of cells that are ready."""
        return len(self._ready)

    def prepare(self) -> None:
        """Fork as many cells as starts wait for, and as shall be ready besides."""
        wanted = self._ready_max + len(self._waiters) - len(self._ready)
        while not self._closed and len(self._forking) < min(wanted, FORKING_MAX):
            task = self._tasks.create_task(self._make_and_hand_over(), name="prefork")
            self._forking.add(task)
            task.add_done_callback(self._on_made)

    async def take(self, receiver: Receiver) -> Cell:
        """Return a preforked cell, whose frames and output go to `receiver` from now on.

        Raises:
            ZygoteFailed: No cell can be started.
        """
        cell = self._pop_ready()
        if cell is None:
            waiter: asyncio.Future[Cell] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self.prepare()
            try:
                cell = await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                    self._keep(waiter.result())
                raise
        cell.pass_on_to(receiver)
        if self._refill_timer is None and not self._closed:
            self._refill_timer = asyncio.get_running_loop().call_later(REFILL_SECONDS, self._refill)
        return cell

    def _refill(self) -> None:
        self._refill_timer = None
        self.prepare()

    def _pop_ready(self) -> Cell | None:
        while self._ready:
            cell = self._ready.popleft()
            if not cell.ended.done():
                return cell
        return None

    def _next_waiter(self) -> asyncio.Future[Cell] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    async def _make_and_hand_over(self) -> bool:
        try:
            try:
                cell = await self._fork_cell()
            except ZygoteEnded:  # nothing of a call has begun: fork it from the next zygote
                cell = await self._fork_cell()
        except (ZygoteFailed, OSError) as failure:
            if (waiter := self._next_waiter()) is not None:
                waiter.set_exception(failure)
            if not self._closed:
                logger.warning("No cell can be made: %s", failure)
            return False
        if (waiter := self._next_waiter()) is not None:
            waiter.set_result(cell)
        else:
            self._keep(cell)
        return True

    def _keep(self, cell: Cell) -> None:
        if len(self._ready) < self._ready_max:
            self._ready.append(cell)
        else:  # the start that it was forked for was cancelled
            cell.end()

    def _on_made(self, task: asyncio.Task[bool]) -> None:
        self._forking.discard(task)
        failed = not task.cancelled() and task.exception() is None and not task.result()
        self._failures = self._failures + 1 if failed else 0
        # Also after a success: a `take` before this callback counted the cell as still being forked.
        if self._waiters or self._failures <= RETRIES_MAX:
            self.prepare()
        elif self._retry_timer is None and not self._closed:  # no start waits: retry later
            seconds = min(RETRY_SECONDS_MAX, 2.0 ** (self._failures - RETRIES_MAX - 1))
            self._retry_timer = asyncio.get_running_loop().call_later(seconds, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self.prepare()

    async def _fork_cell(self) -> Cell:
        receiver = _HelloReceiver()
        cell = await Cell.start(
            self.zygote, receiver, enclosure=self._enclosure, host_network=self._host_network
        )
        cell.ended.add_done_callback(lambda _: receiver.on_exit(cell))
        try:
            async with asyncio.timeout(HELLO_SECONDS_MAX):
                await receiver.hello
                # The keeper can be later than its worker, on a loaded machine. A worker that is guarded by then would be taken
                # for a process that its tool has started, and its guard for the worker.
                await cell.named.wait()
        except TimeoutError:
            cell.end()
            await cell.ended
            raise ZygoteFailed(f"a new cell was not ready within {HELLO_SECONDS_MAX:.0f} s") from None
        except BaseException:
            cell.end()
            await asyncio.shield(cell.ended)
            raise
        if self._closed:
            cell.end()
            await cell.ended
        return cell

    async def aclose(self) -> None:
        """End all preforked cells, also those that are being forked."""
        self._closed = True
        for timer in (self._retry_timer, self._refill_timer):
            if timer is not None:
                timer.cancel()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(ZygoteFailed("the daemon is stopping"))
        if self._forking:
            await asyncio.wait(self._forking)
        for cell in list(self._ready):
            if not cell.ended.done():
                cell.end()
                await cell.ended
        self._ready.clear()


class Preforks:
    """The preforked cells of every kind: what they are going to be, and whether they use the network of the host.

    Args:
        zygote: Forks all of them.
        tasks: Runs the tasks that start them.
        tmpdirs: Where workers that take a cell make their temporary directories.
    """

    def __init__(self, zygote: Zygote, tasks: asyncio.TaskGroup, tmpdirs: TemporaryDirectories) -> None:
        self._zygote = zygote
        self._tasks = tasks
        self._tmpdirs = tmpdirs
        self._kinds: dict[tuple[Enclosure, bool], PreforkedCells] = {}  # the mutable state

    @property
    def ready(self) -> int:
        """The number of cells that are ready."""
        return sum(cells.ready for cells in self._kinds.values())

    def prepare(self) -> None:
        """Fork the first cells, before it is known what this host supports."""
        self._of_kind("baseline", host_network=False).prepare()

    def for_cell(self, spec: CellSpec) -> PreforkedCells:
        """Return the preforked cells that a cell of this specification can be made of."""
        enclosure = spec.policy.enclosure
        host_network = enclosure == "strict" and spec.policy.network == "open"
        return self._of_kind(enclosure, host_network=host_network)

    def _of_kind(self, enclosure: Enclosure, *, host_network: bool) -> PreforkedCells:
        kind = enclosure, host_network
        if kind not in self._kinds:
            self._kinds[kind] = PreforkedCells(
                self._zygote, self._tasks, self._tmpdirs, enclosure=enclosure, host_network=host_network
            )
        return self._kinds[kind]

    async def aclose(self) -> None:
        """End all preforked cells, also those that are being forked."""
        for cells in list(self._kinds.values()):
            await cells.aclose()
