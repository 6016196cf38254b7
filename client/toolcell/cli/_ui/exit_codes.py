"""How the command ends: its exit codes, and the failures that are its own.

A tool that failed is no failure of the command: it has an Outcome, and the Outcome's kind has an exit code.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """Every code that the command exits with; a promise to scripts."""

    OK = 0
    FAILED = 1  # tool_error; `check` found something
    USAGE = 2  # the command line; invalid_arguments
    REFUSED = 3  # refused, denied
    CRASHED = 4
    LIMIT_EXCEEDED = 5
    UNAVAILABLE = 69  # EX_UNAVAILABLE of <sysexits.h>: no daemon
    INTERNAL = 70  # EX_SOFTWARE
    OUTPUT = 74  # EX_IOERR: a full disk behind stdout
    TIMED_OUT = 124  # as timeout(1)
    ABORTED = 130  # as a shell has it: 128 and SIGINT


# By the name of the kind, so that commands which end early need not load the client.
KIND_EXITS: Final = {
    "ok": Exit.OK,
    "tool_error": Exit.FAILED,
    "invalid_arguments": Exit.USAGE,
    "denied": Exit.REFUSED,
    "refused": Exit.REFUSED,
    "crashed": Exit.CRASHED,
    "limit_exceeded": Exit.LIMIT_EXCEEDED,
    "timed_out": Exit.TIMED_OUT,
    "aborted": Exit.ABORTED,
    "internal": Exit.INTERNAL,
}


class Failure(Exception):
    """The command cannot do what it was asked for: why, and what to do about it."""

    def __init__(self, exit_code: Exit, code: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code  # for programs: "usage", "unavailable", or the reason of a refusal
        self.message = message
        self.remedy = remedy


class Misuse(Failure):
    """The command line is wrong."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(Exit.USAGE, "usage", message, remedy)
