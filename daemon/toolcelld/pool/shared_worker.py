"""The daemon's side of a worker that takes several calls at once: that of an MCP server.

Each call has a number, and its frames name it. What the server prints is a call's where one call alone runs, else the
server's own, which goes to the event log.

An abort is one call's. Nothing proves that a server has stopped what a call was at, but the end of its cell; so a worker
whose process is replaced (`replaced`) gets no further call, and its cell is ended when every call has left it or is
itself stopped and reported: it is drained.

Between calls its server may say that it has other tools, or end. The first is told to `on_listed`, as is the list that it
starts with, the second to the pool (`on_lapse`), which has the next call wait where that happens again and again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Final

from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.describing.relisting import Listed
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.cell.exit import CellExit
from toolcelld.cell.stdio import Source
from toolcelld.event_log import TEXT_CHARACTERS_MAX, LogLine
from toolcelld.lifecycle import WorkerState
from toolcelld.network.refusals import RefusedHost
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.startup import Startup
from toolcelld.pool.worker import CallListener, Worker
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import (
    DESCRIPTION_BYTES_MAX,
    CallContext,
    CallHeader,
    EndedMessage,
    ListedMessage,
    from_worker,
)

STALE_MAX: Final = 100
"""Frames about calls that it does not have; a worker that is whole sends none after the result."""
LOGGED_BYTES_MAX: Final = 2**20
"""Of what a server prints outside of a single call, in a minute: the event log has one size for all."""
LOGGED_SECONDS: Final = 60.0
OF_SERVER: Final = frozenset({"listed", "ended"})
"""Messages about the server and not about a call."""
LISTS_MAX: Final = 240
"""Lists of tools in a minute; a worker that is whole sends half as many, however often its server changes them."""
LISTS_SECONDS: Final = 60.0
UNPROVEN_MAX: Final = 100
"""Unconfirmed calls whose log has a line when their process has ended; the latest."""


class SharedWorker(Worker):
    """A worker with places for several calls.

    Args:
        log: Takes what its server prints outside of a single call.
        on_listed: Takes the tools that its server has, when it is started and when it says that they are others: a
            description, or one as JSON that is not read yet.
    """

    several = True

    def __init__(
        self,
        worker_id: str,
        spec: CellSpec,
        on_change: Callable[[Worker], None],
        prepare: Callable[[CellSpec], Awaitable[CellSpec]] | None = None,
        log: Callable[[LogLine], None] = lambda _: None,
        on_listed: Callable[[ToolFile, Listed], None] = lambda _, __: None,
    ) -> None:
        super().__init__(worker_id, spec, on_change, prepare)
        self._log = log
        self._on_listed = on_listed
        self.on_lapse: Callable[[SharedWorker], None] = lambda _: None
        """Called when its server has ended while it had no call; the pool sets this."""
        # The mutable state, in addition to that of a worker.
        self.places = 1  # calls that it takes at once, as it reported
        self.calling: dict[int, CallListener] = {}  # by the number of the call
        self.bounded: Counter[str] = Counter()  # calls of tools with a bound on concurrency; the pool's
        # Whether a call was stopped, so that it gets no other and is ended when it is drained
        self.replaced = False
        self.ended_for = ""  # why we ended its cell though calls were running in it, as the end of a sentence
        self.unproven: deque[str] = deque(maxlen=UNPROVEN_MAX)  # calls that were told as unconfirmed, by id
        self._over: set[int] = set()  # stopped calls that the worker has reported, and that wait for its end
        self._speaking = 0  # the call of the last frame, which a chunk continues
        self._stale = 0
        self._logged_since = self._logged_bytes = 0.0
        self._list = bytearray()  # what has come of a new list of tools
        self._list_missing = 0  # bytes of it that have not
        self._lists_since, self._lists = 0.0, 0  # those of the current minute

    @property
    def listeners(self) -> tuple[CallListener, ...]:
        """Those of the calls that it has, the oldest first."""
        return tuple(self.calling.values())

    @property
    def has_place(self) -> bool:
        """Whether it takes a call beside those that it has."""
        return self.state is WorkerState.BUSY and self.others + 1 < self.places

    @property
    def is_leaving(self) -> bool:
        """Whether it has calls and gets no other, so that another process may be started in its place."""
        return self.state is WorkerState.LAST

    async def start(
        self, prefork: PreforkedCells, *, load_seconds: float, describe: bool = False
    ) -> Description:
        """Start it; see `Worker.start`. Its server may have other tools than when it was described: they are told."""
        description = await super().start(prefork, load_seconds=load_seconds, describe=True)
        if not describe and not self._lists:  # else it has told of a newer one already
            self._on_listed(self.spec.file, description)
        return description

    def _take(self, startup: Startup) -> None:
        self.places = startup.calls

    # Calling

    def begin(self, tool: str, arguments: bytes, context: CallContext, listener: CallListener) -> int:
        """Send a call to the worker; see `Worker.begin`."""
        self.calls += 1
        self.since = time.time()
        cell = self.cell
        cell.stdio.drain()  # what was printed before it
        if not self.calling:
            cell.stdio.tails.clear()
        self.calling[self.calls] = listener
        message: CallHeader = {"type": "call", "seq": self.calls, "tool": tool, "context": context}
        cell.channel.send(message, arguments)
        if cell.ended.done():  # between the lease and now; `_on_ended` had no listener to notify
            cell.loop.call_soon(listener.on_death, cell.ended.result())
        return self.calls

    def leave(self, sequence: int) -> None:
        """Let go of a call, which receives nothing more."""
        self.calling.pop(sequence, None)
        self._over.discard(sequence)

    # Stopping

    def report_stopped(self, sequence: int) -> None:
        """Note that a stopped call was reported, and waits for the end of the cell."""
        self._over.add(sequence)
        self.end_if_drained()

    def end_if_drained(self) -> None:
        """End the cell of a worker that is replaced, if nothing runs in it but what was stopped."""
        if self.replaced and self.others + 1 == len(self._over):
            self.cell.end()

    def disown(self, sequence: int) -> None:
        """Let go of a call that may go on in the server, and needs no proof."""
        self.calling.pop(sequence, None)
        self.report_stopped(sequence)

    def end_stuck(self, text: str, why: str = "") -> None:
        """End the cell because a call does not stop.

        Args:
            text: For how long it has not.
            why: What the other calls are told, as the end of a sentence.
        """
        self.ended_for = self.ended_for or why
        super().end_stuck(text)

    def retire(self, grace_seconds: float) -> None:
        """Ask an idle worker to exit; one that is replaced is drained now, and ended."""
        if self.replaced:
            self.cell.end()
        else:
            super().retire(grace_seconds)

    # From the cell

    def on_frame(self, frame: Frame) -> None:
        if self._startup is not None and not self._startup.over:
            super().on_frame(frame)
            return
        kind = frame.header["type"]
        if kind in OF_SERVER or self._list_missing:
            self._on_server_frame(frame)
            return
        if kind != "chunk":
            number = frame.header.get("seq")
            self._speaking = number if type(number) is int else 0
        if (listener := self.calling.get(self._speaking)) is not None:
            listener.on_frame(frame)
            return
        self._stale += 1
        if self._stale > STALE_MAX:
            self.cell.channel.fail(FrameError("frames about calls that it does not have"))

    def _on_server_frame(self, frame: Frame) -> None:
        """Take a frame about the server itself."""
        fail = self.cell.channel.fail
        if self._list_missing:
            if frame.header["type"] != "chunk" or not 0 < len(frame.payload) <= self._list_missing:
                fail(FrameError("a list of tools that is not complete"))
                return
            self._go_on_listing(frame.payload)
            return
        try:
            message = from_worker(frame.header)
        except FrameError as error:
            fail(error)
            return
        now = time.monotonic()
        if now - self._lists_since >= LISTS_SECONDS:
            self._lists_since, self._lists = now, 0
        self._lists += 1
        if self._lists > LISTS_MAX:
            fail(FrameError(f"more than {LISTS_MAX} lists of tools and ends of its server in a minute"))
        elif isinstance(message, ListedMessage):
            size = len(frame.payload) if message.size is None else message.size
            if not len(frame.payload) <= size <= DESCRIPTION_BYTES_MAX:
                fail(FrameError(f"a list of tools of more than {DESCRIPTION_BYTES_MAX} bytes"))
                return
            self._list_missing = size
            self._go_on_listing(frame.payload)
        elif isinstance(message, EndedMessage):
            self.log("log", "warning", f"{message.message}; the next call starts it again")
            self.on_lapse(self)

    def _go_on_listing(self, part: bytes) -> None:
        self._list += part
        self._list_missing -= len(part)
        if not self._list_missing:
            listed, self._list = bytes(self._list), bytearray()
            self._on_listed(self.spec.file, listed)

    def on_output(self, source: Source, data: bytes) -> bool:
        if self._startup is not None:
            return super().on_output(source, data)
        if len(self.calling) == 1:
            (listener,) = self.calling.values()
            if not listener.has_reported:
                return listener.on_output(source, data)
        self._log_output(source, data)
        return False

    def _log_output(self, source: Source, data: bytes) -> None:
        now = time.monotonic()
        if now - self._logged_since >= LOGGED_SECONDS:
            self._logged_since, self._logged_bytes = now, 0
        room = int(LOGGED_BYTES_MAX - self._logged_bytes)
        if room <= 0:
            return
        self._logged_bytes += len(data)
        for line in data[:room].decode(errors="replace").splitlines():
            for start in range(0, len(line), TEXT_CHARACTERS_MAX):
                self.log(source, "", line[start : start + TEXT_CHARACTERS_MAX])
        if len(data) >= room:
            self.log("log", "warning", f"more than {LOGGED_BYTES_MAX >> 20} MiB in a minute is not kept")

    def log(self, source: str, level: str, text: str, call_id: str = "") -> None:
        """Add a line of the server to the event log.

        Args:
            source: "stdout", "stderr" or "log".
            level: Of the line; empty for what was printed.
            text: The line.
            call_id: The call that it is about; empty, the default, for none.
        """
        self._log(LogLine(time.time(), source, level, text, self.spec.file.stem, call_id, self.id))

    def on_broken(self, error: FrameError) -> None:
        super().on_broken(error)
        for listener in self.listeners:
            listener.on_broken(error)

    def _on_refused(self, refused: RefusedHost) -> None:
        for listener in self.listeners:
            listener.on_refused(refused)
        if not self.calling:
            super()._on_refused(refused)

    def _cause_of_crash(self, cell_exit: CellExit) -> str:
        ended = self.ended_for or (self.replaced and self.cell.is_ending)
        return "" if ended else super()._cause_of_crash(cell_exit)

    def _on_ended(self, ended: asyncio.Future[CellExit]) -> None:
        if self.state is WorkerState.IDLE and not self.cell.is_ending:
            self.on_lapse(self)
        super()._on_ended(ended)
        cell_exit = ended.result()
        left = "and nothing of it is left" if cell_exit.proven else "as far as this host can tell"
        for call_id in self.unproven:
            self.log("log", "info", f"the process in which it was cancelled has ended, {left}", call_id)
        for listener in self.listeners:
            listener.on_death(cell_exit)
