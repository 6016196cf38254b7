"""Messages, a progress line and questions, written to stderr so that stdout has only the result.

The line of progress is rewritten in place, and only on a terminal. Other output removes it first and
brings it back, so that nothing is ever mixed into it. Rich could do this too; a call should not pay for importing it.
Nor for asyncio, which only questions and the figures of a waiting need: `toolcell call` does without it.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TextIO

from toolcell._printable import printable

from .format import clean
from .prose import columns_of, prose, width_of
from .streams import write_own

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator

REDRAW_SECONDS: Final = 0.05  # a tool may report thousands of steps a second; an eye sees twenty
LOADING: Final = "loading tools"
BAR_CELLS: Final = 20
WAITING_SECONDS: Final = 1.0  # before a line says what is waited for, and between two figures
ANSWER_BYTES_MAX: Final = 4096  # what a terminal passes as one line

_ERASE = "\r\x1b[K"


class Terminal:
    """Standard error, and the person who may sit before it."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self.is_terminal = self._stream.isatty()
        # The mutable state: what the line says now, whether it is drawn and since when, and whether the cursor
        # is at the beginning of a line.
        self._line = ""
        self._drawn = False
        self._drawn_at = 0.0
        self._held_back = False  # progress came too soon after the last
        self._at_start = True
        self._asking: asyncio.Lock | None = None  # made with the first question

    @property
    def answers(self) -> bool:
        """Whether questions can be asked."""
        return self.is_terminal and sys.stdin.isatty()

    def note(self, text: str) -> None:
        """Say a remark, which `--quiet` leaves out."""
        if not self._quiet:
            self.say(prose(text, self._stream), end="")

    def log(self, text: str) -> None:
        """Say an entry of a tool's log, with its lines as they are; `--quiet` leaves it out."""
        if not self._quiet:
            self.say(text, end="")

    def piece(self, text: str) -> None:
        """Write a piece of a tool's output; `--quiet` leaves it out."""
        if not self._quiet:
            self._say(text, end="")

    def say(self, text: str, end: str = "\n") -> None:
        """Say something, on a line of its own unless it is a piece of one; control characters are escaped."""
        self._say(printable(text), end)

    def _say(self, text: str, end: str) -> None:
        self._erase()
        if end and not self._at_start:
            text = "\n" + text
        self._write(printable(text + end) if self.is_terminal else text + end)
        self._at_start = (text + end).endswith("\n")
        self._draw()

    def progress(self, tool: str, done: float, total: float | None, message: str) -> float:
        """Replace the line of progress.

        Returns: in how many seconds to call `redraw`, as this came too soon after the last; 0 for not at all.
        """
        if not self.is_terminal or self._quiet:
            return 0.0
        if total and total > 0:
            share = min(max(done / total, 0.0), 1.0)
            filled = round(share * BAR_CELLS)
            figures = f"{'━' * filled}{'╌' * (BAR_CELLS - filled)} {share:4.0%}"
        else:
            figures = f"{done:g}"
        self._line = " ".join(part for part in (f"{clean(tool)}:", figures, clean(message)) if part)
        seconds = self._drawn_at + REDRAW_SECONDS - time.monotonic()
        if seconds <= 0:
            self._draw()
        elif not self._held_back:
            self._held_back = True  # it may be the last one for long
            return seconds
        return 0.0

    def redraw(self) -> None:
        """Draw the progress that was held back."""
        self._held_back = False
        self._draw()

    def interrupt(self, text: str) -> None:
        """Answer a ^C: on a terminal in place of what it echoed."""
        if self.is_terminal:
            self._line = ""
            self._write(f"{_ERASE}{prose(f'^C {printable(text)}', self._stream)}\n")
            self._drawn, self._at_start = False, True
        else:
            self.say(text)

    def clear(self) -> None:
        """Take the line of progress away for good, and end a line that was begun."""
        self._erase()
        self._line = ""
        if not self._at_start:
            self._write("\n")
            self._at_start = True

    @asynccontextmanager
    async def waiting(self, text: str) -> AsyncGenerator[Waiting]:
        """Say what is waited for, and for how long, if it takes more than a second; see `Waiting`."""
        import asyncio

        waiting = Waiting(self, text)
        ticking = asyncio.create_task(waiting.tick())  # awaited below
        try:
            yield waiting
        finally:
            waiting.end()
            ticking.cancel()
            await asyncio.wait({ticking})

    def show_line(self, line: str) -> None:
        """Replace the line of progress by a text; "" takes it away."""
        if self.is_terminal and not self._quiet:
            self._erase()
            self._line = clean(line)
            self._draw()

    async def ask(self, question: str, choices: str) -> str:
        """One line from the person, without its end; empty where the terminal is closed. May be cancelled."""
        import asyncio

        if self._asking is None:
            self._asking = asyncio.Lock()
        async with self._asking:
            line = self.put(question, choices)
            try:
                await readable(sys.stdin.fileno())
                return self.typed()
            finally:
                self.put_back(line)

    async def agrees(self, question: str, *, without: str, declined: str) -> bool:
        """Ask a question that is answered with yes or no, and say what a no means; return whether it was yes.

        Without a terminal that is a no, which `without` says; `declined` is said of a person's no.
        """
        if self.answers and (await self.ask(question, "[y/N]")).lower() in ("y", "yes"):
            return True
        self.say(declined if self.answers else without)
        return False

    def put(self, question: str, choices: str) -> str:
        """Write a question, whose answer is typed behind it; return the line of progress, for `put_back` after it."""
        line, self._line = self._line, ""
        self._erase()
        self._write(printable(f"{prose(question, self._stream)}\n{choices} " if choices else question))
        self._at_start = False  # progress is not drawn into the answer
        return line

    def typed(self) -> str:
        """Read what was typed, up to Enter."""
        return os.read(sys.stdin.fileno(), ANSWER_BYTES_MAX).decode(errors="replace").strip()

    def put_back(self, line: str) -> None:
        """Take note that a question is over."""
        self._at_start, self._line = True, line

    def _draw(self) -> None:
        if self._line and self._at_start:
            self._write(_ERASE + _cut(self._line, columns_of(self._stream) - len("^C") - 1))
            self._drawn, self._drawn_at = True, time.monotonic()

    def _erase(self) -> None:
        if self._drawn:
            self._write(_ERASE)
            self._drawn = False

    def _write(self, text: str) -> None:
        """Write a text as it is."""
        try:
            write_own(self._stream, text)
            self._stream.flush()
        except OSError:  # the reader has closed it; the call continues, and its exit code says how it ended
            self._stream = open(os.devnull, "w")  # noqa: SIM115  # for the rest of the process
            self.is_terminal = False


class Waiting:
    """A line of a terminal that says what is waited for, until it ends. It `began` by the monotonic clock, by default now."""

    def __init__(self, terminal: Terminal, text: str, *, began: float | None = None) -> None:
        self.text = text
        self._terminal = terminal
        # The mutable state: whether it has ended, and whether it has printed anything.
        self._ended = False
        self._shown = False
        self._began = time.monotonic() if began is None else began

    async def tick(self) -> None:
        """Rewrite the line each second; ends with the waiting."""
        import asyncio

        while not self._ended:
            await asyncio.sleep(WAITING_SECONDS)
            self.say()

    def say(self) -> None:
        """Rewrite the line, unless the waiting has ended."""
        if not self._ended:
            self._shown = True
            self._terminal.show_line(f"{self.text} ({time.monotonic() - self._began:.0f} s)")

    def end(self) -> None:
        """Take the line away. Idempotent."""
        if self._shown and not self._ended:
            self._terminal.show_line("")
        self._ended = True


async def readable(descriptor: int) -> None:
    """Wait until a descriptor can be read: something was typed, or the process of a pidfd has ended."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _cut(text: str, cells: int) -> str:
    """As much of a text as fits into so many cells of a terminal."""
    used = 0
    for place, letter in enumerate(text):
        used += width_of(letter)
        if used > cells:
            return text[: max(place - 1, 0)] + "…"
    return text
