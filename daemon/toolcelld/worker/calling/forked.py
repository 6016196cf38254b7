"""The end of a process that a tool has forked and that leaves the tool's function.

The call belongs to the process that got it, so the other one ends as a program of its own would: it exits with the status of
`sys.exit`, with 1 after an exception, whose traceback is printed, or else with 0. It reports nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import NoReturn

from toolcelld.worker.loading.traceback_text import traceback_text


def end_forked() -> NoReturn:
    """Exit as the end of a program does that has left its last line, or with the exception that is being handled."""
    status = 1
    try:
        status = _status(sys.exc_info()[1])
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # `os._exit` leaves them out
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the tool may have replaced it
                stream.flush()
        os._exit(status)


def _status(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        print(traceback_text(error), file=sys.stderr)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1
