"""The daemon's side of a zygote, the process from which the cells of one interpreter are forked.

The zygote is started for the first cell (that of the daemon's own interpreter is started ahead). After it has
crashed, another one is started with backoff and full jitter, so that the zygotes of several interpreters, which may
crash together when memory is short, do not start at the same time. The cells of a crashed zygote continue, because
their life lines lead to the daemon.

A start ends with `ready`, an exit, or the deadline. Each failure has its own message, with the last lines of stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import random
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from toolcelld.cell.cgroup import CgroupTree
from toolcelld.cell.kernel_log import KernelLog
from toolcelld.cell.patience import patience
from toolcelld.sandbox.policy import Enclosure
from toolcelld.worker.zygote.launch import LaunchedZygote, launch

logger = logging.getLogger(__name__)

T = TypeVar("T")

READY_SECONDS_MAX: Final = 20.0
"""A new interpreter with pydantic takes 0.2 s; with a cold disk on a loaded machine, a hundred times that."""
BACKOFF_SECONDS: Final = (0.0, 0.1, 0.5, 2.0, 5.0)
"""The longest wait, by the number of crashes in a row; the last one applies to all further crashes."""
ANSWER_SECONDS: Final = (5.0, 10.0, 20.0, 40.0)
"""A fork takes milliseconds. After this time a zygote is replaced; longer after each that did not answer, in a row, since
on an overloaded machine a new one answers no sooner. The last one applies to all further ones."""
STEADY_SECONDS: Final = 60.0
"""After this time a zygote counts as stable: its crash is the first of a new row."""
STDERR_LINES_MAX: Final = 40
MESSAGE_BYTES_MAX: Final = 64 * 1024


class ZygoteFailed(Exception):
    """No cell can be started with this interpreter; the message has the reason and what to do."""


class ZygoteEnded(ZygoteFailed):
    """The zygote ended before it answered; the next `spawn` starts another."""


class Spawned:
    """A forked keeper: its process, and its end as reported by the zygote."""

    __slots__ = ("pid", "pidfd", "replace_zygote", "swept")

    def __init__(
        self, pid: int, pidfd: int, swept: asyncio.Future[bool], replace_zygote: Callable[[], object]
    ) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.swept = swept
        """True when the zygote has reaped the keeper and the rest of its cell; False when it could not reap all of it,
        or has ended."""
        self.replace_zygote = replace_zygote
        """Replaces the zygote that forked it, if that has not been done; returns whether it was done now."""


class Zygote:
    """The zygote of one interpreter, restarted when it has ended.

    Args:
        interpreter: The path of the Python interpreter.
        on_stderr: Called with each line that the zygote prints to stderr.
        cgroups: The cgroups for its cells; none by default.
        launched: The process for the first start; launched by it by default.
        immortal: As in `launch`; one that was launched with it is ended where it is False. Default: True.
        jitter: Draws a wait between two bounds, in seconds; uniform by default.
        clock: Returns the time in seconds; monotonic by default.
    """

    def __init__(
        self,
        interpreter: str,
        on_stderr: Callable[[str], None],
        cgroups: CgroupTree | None = None,
        launched: LaunchedZygote | None = None,
        *,
        immortal: bool = True,
        jitter: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interpreter = interpreter
        self._jitter = jitter
        self.cgroups = cgroups or CgroupTree()
        self.kernel_log: KernelLog | None = None  # where its owner has the kills of its cells looked up
        self._on_stderr = on_stderr
        self._immortal = immortal
        if launched is not None and not immortal:  # before the configuration was read
            launched.close()
            launched = None
        self._launched = launched
        self._lock = asyncio.Lock()
        self._process: _ZygoteProcess | None = None
        self._clock = clock
        self._failures = 0  # in a row
        self._unanswered = 0  # zygotes in a row
        self._started = 0.0

    async def spawn(
        self, descriptors: Sequence[int], *, enclosure: Enclosure, host_network: bool = False
    ) -> Spawned:
        """Fork a keeper.

        Args:
            descriptors: The descriptors of the cell, in the order of `worker.zygote`.
            enclosure: What the cell is going to be.
            host_network: Whether a strict cell uses the network of the host; False by default.

        The time of a start is not that of an answer: a start that takes long is not broken off to start anew.

        Raises:
            ZygoteEnded: The zygote has ended meanwhile, or does not answer and is replaced.
            ZygoteFailed: The zygote cannot be started, or refuses.
        """
        zygote = self._process
        if zygote is None or not zygote.usable:
            zygote = await self.start()
        seconds = ANSWER_SECONDS[min(self._unanswered, len(ANSWER_SECONDS) - 1)]
        try:
            async with patience(seconds):
                spawned = await zygote.spawn(descriptors, enclosure=enclosure, host_network=host_network)
        except TimeoutError:
            if zygote.replace():
                self._unanswered += 1
            raise ZygoteEnded(f"no cell was forked within {seconds:g} s; the zygote is replaced") from None
        self._unanswered = 0
        return spawned

    async def start(self) -> _ZygoteProcess:
        """Return the running zygote; start one if there is none. Raises `ZygoteFailed`."""
        async with self._lock:
            if self._process is not None and self._process.usable:
                return self._process
            if self._process is not None:
                await self._process.stop()
                self._failures = 1 if self._clock() - self._started >= STEADY_SECONDS else self._failures + 1
            delay_max = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
            await asyncio.sleep(self._jitter(0.0, delay_max))
            launched, self._launched = self._launched, None
            self._process = await _ZygoteProcess.start(
                self.interpreter, self._on_stderr, launched, immortal=self._immortal
            )
            self._started = self._clock()
            return self._process

    @property
    def pid(self) -> int | None:
        """The zygote's pid, for display; None while it is not running."""
        return self._process.process.pid if self._process is not None and self._process.alive else None

    async def aclose(self) -> None:
        """End the zygote and reap it."""
        if self._process is not None:
            await self._process.stop()
            self._process = None


class _ZygoteProcess:
    def __init__(
        self,
        interpreter: str,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        on_stderr: Callable[[str], None],
    ) -> None:
        self.interpreter = interpreter
        self.process = process
        self.alive = True
        self._killed = False
        self._control = control
        self._on_stderr = on_stderr
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ids = itertools.count(1)
        self._spawning: dict[str, asyncio.Future[Spawned]] = {}
        self._cells: dict[str, asyncio.Future[bool]] = {}
        self._lines: deque[str] = deque(maxlen=STDERR_LINES_MAX)
        self._partial = b""
        assert process.stderr is not None
        self._stderr = process.stderr.fileno()
        os.set_blocking(self._stderr, False)
        self._loop.add_reader(control, self._on_message)
        self._loop.add_reader(self._stderr, self._on_stderr_ready)

    @classmethod
    async def start(
        cls,
        interpreter: str,
        on_stderr: Callable[[str], None],
        launched: LaunchedZygote | None,
        *,
        immortal: bool,
    ) -> _ZygoteProcess:
        if launched is None:
            try:
                launched = await asyncio.to_thread(launch, interpreter, immortal=immortal)
            except OSError as error:
                raise ZygoteFailed(
                    f"{interpreter}: {error.strerror}; is the interpreter's path right?"
                ) from error
        zygote = cls(interpreter, *launched, on_stderr)
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await zygote._ready
        except TimeoutError:
            await zygote.stop()
            raise ZygoteFailed(
                f"{interpreter} was not ready after {READY_SECONDS_MAX:.0f} s{zygote.last_lines()}"
            ) from None
        except ZygoteFailed:
            await zygote.stop()
            raise
        except asyncio.CancelledError:
            await zygote.stop()
            raise
        return zygote

    @property
    def usable(self) -> bool:
        """Whether it takes requests; one that was killed is `alive` until its end is read."""
        return self.alive and not self._killed

    async def spawn(
        self, descriptors: Sequence[int], *, enclosure: Enclosure, host_network: bool = False
    ) -> Spawned:
        answer: asyncio.Future[Spawned] = self._loop.create_future()
        cell_id = str(next(self._ids))
        self._spawning[cell_id] = answer
        message = json.dumps(
            {"type": "spawn", "id": cell_id, "enclosure": enclosure, "host_network": host_network}
        ).encode()
        try:
            while True:
                try:
                    socket.send_fds(self._control, [message], list(descriptors))
                    break
                except BlockingIOError:
                    await self._writable()
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                os.close(answer.result().pidfd)  # it was answered just before
            raise
        except OSError as error:
            raise ZygoteEnded(
                f"the zygote of {self.interpreter} cannot be reached: {error.strerror}"
            ) from error
        finally:
            self._spawning.pop(cell_id, None)

    async def _writable(self) -> None:
        writable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._control, _resolve, writable)
        try:
            await writable
        finally:
            self._loop.remove_writer(self._control)

    def _on_message(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 4)
        except BlockingIOError:
            return
        except ConnectionError:
            data, descriptors = b"", []
        if not data:
            self._on_control_closed()
            return
        try:
            self._handle(json.loads(data), descriptors)
        finally:
            for number in descriptors:
                os.close(number)

    def _handle(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Handle one message of the zygote; a descriptor that is kept is removed from the list."""
        match message:
            case {"type": "ready"}:
                _resolve(self._ready)
            case {"type": "spawned", "id": cell_id, "pid": pid}:
                swept = self._cells[cell_id] = self._loop.create_future()
                answer = self._spawning.get(cell_id)
                # If `spawn` was cancelled, the keeper's life line is closed already. If the kernel could not pass the
                # keeper's pidfd, `spawn` fails and closes it. Either way the keeper ends.
                if answer is None or answer.done():
                    pass
                elif descriptors:
                    answer.set_result(Spawned(pid, descriptors.pop(), swept, self.replace))
                else:
                    answer.set_exception(ZygoteFailed("the daemon has no free descriptors for another cell"))
            case {"type": "refused", "id": cell_id, "message": reason}:
                answer = self._spawning.get(cell_id)
                if answer is not None and not answer.done():
                    answer.set_exception(ZygoteFailed(reason))
            case {"type": "exited", "id": cell_id, "left": left}:
                if left:
                    logger.warning(
                        "%d processes of a cell were killed and do not end: the kernel holds them.", left
                    )
                _settle(self._cells.pop(cell_id), not left)
            case _:
                raise AssertionError(f"unknown message of the zygote: {message}")

    def _on_stderr_ready(self) -> None:
        try:
            data = os.read(self._stderr, 65536)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._stderr)
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[-4096:]
        for line in lines:
            text = line.decode(errors="replace")[:1000]
            self._lines.append(text)
            self._on_stderr(text)

    def last_lines(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._on_stderr_ready()
        lines = [*self._lines, self._partial.decode(errors="replace")]
        text = "\n  ".join(line for line in lines if line)
        return f":\n  {text}" if text else ""

    def _on_control_closed(self) -> None:
        """Fail the open requests: the zygote takes no more requests and reports no more exits."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control)
        message = f"{self.interpreter} ended{self.last_lines()}"
        if not self._ready.done():
            self._ready.set_exception(ZygoteFailed(message))
        failure = ZygoteEnded(message)
        for answer in self._spawning.values():
            if not answer.done():
                answer.set_exception(failure)
        for swept in list(self._cells.values()):
            _settle(swept, False)

    def replace(self) -> bool:
        """Kill it where it takes requests, so that the next one is sent to another; return whether it was killed."""
        if usable := self.usable:
            logger.warning("The zygote %d does not answer; it is replaced.", self.process.pid)
            self.kill()
        return usable

    def kill(self) -> None:
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)

    async def stop(self) -> None:
        self._on_control_closed()
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # marks it as retrieved; the failure is reported elsewhere
        self._control.close()
        self._loop.remove_reader(self._stderr)
        try:
            await asyncio.to_thread(self.process.wait, 2)
        except subprocess.TimeoutExpired:
            self.kill()
            await asyncio.to_thread(self.process.wait)
        assert self.process.stderr is not None
        self.process.stderr.close()


def _resolve(waiting: asyncio.Future[None]) -> None:
    _settle(waiting, None)


def _settle(waiting: asyncio.Future[T], value: T) -> None:
    if not waiting.done():
        waiting.set_result(value)
