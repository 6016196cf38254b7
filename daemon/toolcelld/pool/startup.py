"""Loads a tool file into a cell, and reports the first result: loaded, failed, exited or timed out.

Each failure has its own message, with the last lines that were printed. The worker's messages are validated and
bounded, because it has run code of the user by then.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from toolcell._file_kinds import is_package
from toolcelld.catalog.describing.description import Description
from toolcelld.cell.cell import Cell
from toolcelld.cell.exit import CellExit
from toolcelld.cell.stdio import Source
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import (
    DESCRIPTION_BYTES_MAX,
    BecomeMessage,
    BrokenMessage,
    ChunkMessage,
    FailedMessage,
    GuardedMessage,
    HelloMessage,
    LoadedMessage,
    LoadMessage,
    from_worker,
)

logger = logging.getLogger(__name__)

ECHO_CHARACTERS_MAX: Final = 200
ECHO_LINES_MAX: Final = 5
LOAD_GRACE_SECONDS: Final = 1.0
"""After loading was aborted, for the worker's report of the line that it had reached."""
LOADING: Final = 0
"""The sequence number of loading; calls begin at 1."""
FRAMES_MAX: Final = 100
"""Frames of one start; a description of the longest kind takes 17."""


class StartFailed(Exception):
    """A worker could not be started.

    Args:
        stage: The stage that failed: "spawn", "setup", "import", "exit", "deadline" and others.
        message: The cause.
        line: The line of the tool file; 0, the default, where there is none.
        missing_module: The module that could not be imported; empty by default.
    """

    def __init__(self, stage: str, message: str, line: int = 0, missing_module: str = "") -> None:
        super().__init__(message)
        self.missing_module = missing_module
        self.stage = stage
        self.message = message
        self.line = line


def bug(worker: object, error: Exception) -> StartFailed:
    """Return the failure of a start that raised what it must not raise, which is logged."""
    logger.error("%r was not started", worker, exc_info=error)
    return StartFailed("spawn", f"a bug in the daemon: {type(error).__name__}: {error}")


class Startup:
    """Receives a worker's frames and output until its file is loaded."""

    def __init__(self) -> None:
        self.loaded: asyncio.Future[Description] = asyncio.get_running_loop().create_future()
        self.resumed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the worker has said hello again from the interpreter that its cell executes, or has failed."""
        self.layers: tuple[str, ...] = ()  # of its confinement, as it reported them
        self.printed = b""
        self.forks = False  # whether it is a template
        self.calls = 1  # that it takes at once
        self.stuck = False  # whether loading was aborted and did not stop
        self._guarded = False  # whether the worker is going to say that it has a guard
        self._frames = 0
        self._body = bytearray()
        self._remaining = -1  # bytes of the description; -1 before its first frame

    @property
    def over(self) -> bool:
        """Whether the file is loaded or has failed to load."""
        return self.loaded.done()

    async def load(
        self, cell: Cell, spec: CellSpec, become: bytes, *, load_seconds: float, describe: bool
    ) -> Description:
        """Have a cell confined, and the file loaded in it.

        Args:
            cell: Ended by the caller where this fails.
            spec: Its file and settings.
            become: The payload of its `become` message.
            load_seconds: After this time loading is aborted, and the failure has the line that was reached.
            describe: Whether the description is wanted; without it an empty one is returned.

        Raises:
            StartFailed: The file is not loaded.
        """
        file = spec.file
        self._guarded = bool(spec.policy.guarded)
        load = LoadMessage(
            path=file.path,
            stem=file.stem,
            directory=file.directory,
            package=is_package(file.path),
            describe=describe,
            fork=spec.fresh,
            tests=spec.tests,
        )
        cell.channel.send(BecomeMessage(), become)
        deadline = cell.loop.call_later(load_seconds, cell.abort, LOADING, f"{load_seconds:g} s")
        try:
            async with asyncio.timeout(load_seconds + LOAD_GRACE_SECONDS):
                if spec.interpreter is not None and spec.interpreter.program:
                    await self.resumed
                    cell.channel.send(BecomeMessage(), become)  # for the interpreter that the cell executes
                cell.channel.send(load, file.content)
                return await self.loaded
        except TimeoutError:
            self.stuck = True
            raise StartFailed(
                "deadline", f"still loading after {load_seconds:g} s, and it does not stop"
            ) from None
        except StartFailed as failure:
            if deadline.when() <= cell.loop.time():
                failure.stage = "deadline"  # the worker has said where it was when loading was aborted
            raise
        finally:
            deadline.cancel()

    def fail(self, failure: StartFailed) -> None:
        """Report a failure; only the first one has an effect."""
        if not self.loaded.done():
            self.loaded.set_exception(failure)
        if not self.resumed.done():
            self.resumed.set_result(None)

    def on_frame(self, cell: Cell, frame: Frame) -> None:
        """Handle a frame of the worker."""
        if self.over:
            return  # the start has ended
        payload = frame.payload
        self._frames += 1
        if self._frames > FRAMES_MAX:
            cell.channel.fail(FrameError(f"more than {FRAMES_MAX} frames while it was loading"))
            return
        try:
            message = from_worker(frame.header)
        except FrameError as error:
            cell.channel.fail(error)
            return
        match message:
            case HelloMessage():
                if not self.resumed.done():
                    self.resumed.set_result(None)
            case GuardedMessage() if self._guarded:
                self._guarded = False  # and not a second time, as code of the user runs next
                cell.take_guarded()
            case LoadedMessage() if self._remaining < 0:
                self._begin_description(cell, message, payload)
            case ChunkMessage() if 0 < len(payload) <= self._remaining:
                self._body += payload
                self._remaining -= len(payload)
                self._finish_if_complete(cell)
            case BrokenMessage():
                text = message.message
                if message.stage == "exit":  # a program prints why before it exits
                    cell.stdio.drain()
                    text = "\n".join([text, *_last_lines(cell.stdio.tail("stderr"))])
                self.fail(StartFailed(message.stage, text, message.line, message.module))
            case FailedMessage():
                self.fail(StartFailed("setup", f"sandbox_setup_failed: {message.message}"))
            case _:
                cell.channel.fail(FrameError(f"a {message.type} message while it was loading"))

    def _begin_description(self, cell: Cell, message: LoadedMessage, payload: bytes) -> None:
        size = message.size if message.size is not None else len(payload)
        if not len(payload) <= size <= DESCRIPTION_BYTES_MAX:
            self.fail(
                StartFailed("describe", f"its tools take more than {DESCRIPTION_BYTES_MAX} bytes to describe")
            )
            cell.end()
            return
        self.layers = message.layers
        self.forks = bool(message.forks)
        self.calls = message.calls or 1
        self._body += payload
        self._remaining = size - len(payload)
        self._finish_if_complete(cell)

    def _finish_if_complete(self, cell: Cell) -> None:
        """Report the description if all of it has arrived."""
        if self._remaining:
            return
        cell.stdio.drain()
        try:
            self.loaded.set_result(Description.from_json(bytes(self._body)))
        except ValueError as error:
            self.fail(StartFailed("describe", f"its tools cannot be read: {str(error)[:200]}"))

    def on_output(self, source: Source, data: bytes) -> None:
        """Keep the beginning of what the file prints to stdout while it is loaded."""
        if source == "stdout":
            self.printed = (self.printed + data)[:ECHO_CHARACTERS_MAX]

    def on_broken(self, error: FrameError) -> None:
        """Report that the worker sent an invalid frame."""
        self.fail(StartFailed("protocol", f"the worker sent an invalid frame: {error}"))

    def on_exit(self, cell_exit: CellExit) -> None:
        """Report that the cell has ended."""
        self.fail(_exit_failure(cell_exit))


def _exit_failure(cell_exit: CellExit) -> StartFailed:
    cause = cell_exit.cause()
    description = (
        f"the process exited with status {cause[5:]}"
        if cause.startswith("exit ")
        else f"the process was ended by {cause}"
    )
    if cell_exit.status is None:
        description = "the process was lost"
    lines = _last_lines(cell_exit.stderr)
    return StartFailed("exit", "\n".join([f"{description} while it was loaded", *lines]))


def _last_lines(printed: str) -> list[str]:
    lines = [line[:ECHO_CHARACTERS_MAX] for line in printed.splitlines() if line.strip()]
    return lines[-ECHO_LINES_MAX:]
