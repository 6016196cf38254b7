"""Where a process in Python was when a signal ended it: what the interpreter's `faulthandler` wrote on stderr.

A worker has the fault handler from its start (`worker.main`), so nothing is done for a call. It writes the innermost frame
first and ends with ours. The text is what a tool may print as well, so it is bounded, and shows no control characters.
"""

from __future__ import annotations

import re
from typing import Final

from toolcell._printable import printable
from toolcell._results.exception_text import redacted

FATAL_SIGNALS: Final = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"})
"""Those that the fault handler knows."""
FRAMES_MAX: Final = 10
LINE_CHARACTERS_MAX: Final = 200
_BEGIN: Final = "Fatal Python error: "
_FRAME: Final = re.compile(r'  File "(?P<path>.*)", line (?P<line>[0-9]{1,9}|\?\?\?) in (?P<name>.*)')
_OURS: Final = re.compile(r"/toolcelld?/(?:worker|_[a-z_]+)/|/asyncio/|^<frozen ")
"""What calls the tool."""


def split(stderr: str) -> tuple[str, tuple[str, ...]]:
    """Return what was printed before a report of a crash, and its frames, the innermost last; no frames where there is none."""
    printed, begin, report = stderr.rpartition(_BEGIN)
    if not begin:
        return stderr, ()
    frames: list[str] = []
    for line in report.splitlines():
        if (found := _FRAME.fullmatch(line)) is not None:
            if len(frames) < FRAMES_MAX and not _OURS.search(found["path"]):
                frames.append(_shown(found))
        elif frames and not line.strip():
            break  # what follows is of other threads, or the list of extension modules
    return printed, tuple(reversed(frames))


def _shown(frame: re.Match[str]) -> str:
    line = f'File "{frame["path"]}", line {frame["line"]}, in {frame["name"]}'
    return printable(redacted(line[: 4 * LINE_CHARACTERS_MAX]), lines=False)[:LINE_CHARACTERS_MAX]
