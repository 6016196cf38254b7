"""The calls of a session that wait for their tool as it was saved before them.

A session that follows its tools runs what was saved before the call: where an edit has not been read yet, the call waits
for that (`catalog.watch`). Where it was read and is being described, the call waits for that too, in any session. Neither
waits longer than a file may load; after that the call runs what is known, and its outcome says so.

A tool that an edit takes away is looked for once more: some editors put a file aside and write another one.
"""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolcelld.catalog.catalog import may_be_in
from toolcelld.catalog.directory import Pin
from toolcelld.catalog.watch import Watch
from toolcelld.sessions.project_watch import ProjectWatch

if TYPE_CHECKING:
    from toolcelld.calls.call import Call
    from toolcelld.sessions.session import Session

DESCRIBED_SECONDS_MAX: Final = 15.0
"""Seconds that a call waits for its tool to be described, and for a file of its name as long again as that may load."""


@dataclass(slots=True)
class _Wait:
    timer: asyncio.TimerHandle
    known: bool  # whether the tool was there when the call came
    unread: bool  # whether what was saved before the call is still to be read
    looked_again: bool = False  # for a tool that is gone
    wanted: bool = False  # whether files of the tool's name were asked for


class WaitingCalls:
    """The calls that wait, in their order.

    Args:
        session: Theirs.
        pin: Of the session's catalog.
        project: Tells whether the project has to be found again.
        watch: Tells of edits; None for a session that does not follow.
    """

    def __init__(self, session: Session, pin: Pin, project: ProjectWatch, watch: Watch | None) -> None:
        self._session: Session = weakref.proxy(session)  # which has these, and is freed when it has ended
        self._pin = pin
        self._project = project
        self._watch = watch
        self._directory = pin.catalog.directory
        self._loop = asyncio.get_running_loop()
        self._calls: dict[Call, _Wait] = {}  # the mutable state

    def unread(self) -> asyncio.Future[None] | None:
        """Return what a call of now has to wait for: a future if changes have not been read, else None."""
        found = self._project.catch_up()
        edited = None if self._watch is None else self._watch.catch_up(self._directory)
        if found is None or edited is None:
            return found or edited
        return asyncio.ensure_future(_both(found, edited))

    def add(self, call: Call, unread: asyncio.Future[None] | None) -> None:
        """Add a call; `Session.start_late` is called when it can start."""
        timer = self._loop.call_later(DESCRIBED_SECONDS_MAX, self._late, call)
        known = self._pin.catalog.find(call.request.tool) is not None
        wait = self._calls[call] = _Wait(timer, known, unread is not None)
        if unread is not None:
            unread.add_done_callback(lambda _: self._read(call))
        else:
            self._want(call, wait)

    def remove(self, call: Call) -> None:
        """Remove a call, if it waits."""
        if (wait := self._calls.pop(call, None)) is not None:
            wait.timer.cancel()

    def on_catalog(self) -> None:
        """Start those for which a newer catalog has what they wait for."""
        for call, wait in list(self._calls.items()):
            self._go_on(call, wait)

    def prepare(self, call: Call, path: str, text: str) -> None:
        """Stop the clocks of a call while packages of its file are installed; an empty text starts them again."""
        wait = self._calls.get(call)
        if wait is None or not self._concerns(call, path):
            return
        wait.timer.cancel()
        call.prepare(text)
        if not text and not call.ended:
            wait.timer = self._loop.call_later(DESCRIBED_SECONDS_MAX, self._late, call)

    def _read(self, call: Call) -> None:
        if (wait := self._calls.get(call)) is not None:
            wait.unread = False
            self._go_on(call, wait)

    def _go_on(self, call: Call, wait: _Wait) -> None:
        """Start a call if nothing that it waits for is still to come."""
        catalog, name = self._pin.catalog, call.request.tool
        if wait.unread:
            return
        if catalog.awaits(name):
            self._want(call, wait)
        elif self._watch is not None and wait.known and not wait.looked_again and catalog.find(name) is None:
            wait.looked_again = wait.unread = True
            self._watch.look_again(self._directory).add_done_callback(lambda _: self._read(call))
        else:
            self._session.start_late(call)

    def _want(self, call: Call, wait: _Wait) -> None:
        """Describe the file of a call's tool before others."""
        name = call.request.tool
        if (tool := self._pin.catalog.find(name)) is not None:
            self._pin.want(tool.path)
        if not wait.wanted:  # once, as it looks at every file
            wait.wanted = True
            for file in self._pin.scanned:
                if may_be_in(name, file.path):
                    self._pin.want(file.path)

    def _late(self, call: Call) -> None:
        """Wait on for a file that may have the call's tool; otherwise start the call, or refuse it."""
        if any(self._concerns(call, file.path) for file in self._pin.scanned):
            seconds = self._session.services.pool.load_seconds
            self._calls[call].timer = self._loop.call_later(seconds, self._session.start_late, call)
        else:
            self._session.start_late(call)

    def _concerns(self, call: Call, path: str) -> bool:
        """Whether a file has the tool of a call, or may have it by its name."""
        name = call.request.tool
        tool = self._pin.catalog.find(name)
        return may_be_in(name, path) or (tool is not None and tool.path == path)


async def _both(*waiting: asyncio.Future[None]) -> None:
    await asyncio.wait(waiting)
