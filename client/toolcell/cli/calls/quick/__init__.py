"""`toolcell call` without the libraries that take most of its time: asyncio, protobuf's, typer.

What a command loads is what it costs: the whole command takes a quarter of a second before its first request to the daemon.
This one is a loop around one socket: `plan` reads the command line, `line` speaks gRPC, `call` makes the call on it,
`signals` has ^C abort it. What it asks and what it prints is what the whole command asks and prints: it opens a session
that ends with the command, calls the tool in it, and offers the services for notes and for an abort; what comes is shown
by the same functions.

It serves what most calls are, and leaves the rest to the whole command; `run` returns None then: for an option or an
argument that it does not know, for a person at a terminal whom a tool may ask, where no daemon runs or it cannot be
dialled, for a tool that the catalog does not have yet, and for arguments that do not fit. None means that no call was
sent: a session without a call is all that the daemon has seen. Once the call is sent, its end is reported here,
whatever happens.
"""

from __future__ import annotations

import os

from toolcell.cli._ui.streams import leave_output

from .call import CallOnLine
from .line import Line
from .plan import Unserved, read_plan
from .signals import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import Plan

__all__ = ["run"]


def run(words: Sequence[str]) -> int | None:
    """Run a command line, without the name of the program; return its exit code.

    None if it is left to the whole command; then nothing has happened that a second run would repeat.
    """
    if os.isatty(0) and os.isatty(2):
        return None
    try:
        found = read_plan(words)
        return None if found is None else _run(found)
    except Unserved:
        return None
    except BrokenPipeError:
        leave_output()
        return 0


def _run(found: Plan) -> int:
    address, token, directory = found.addressed()
    given, timeout_seconds = found.given()
    signals = Signals()
    line = Line(address, token, signals.pipe)
    try:
        return CallOnLine(found, line, signals).run(directory, given, timeout_seconds)
    finally:
        line.close()
        signals.close()
