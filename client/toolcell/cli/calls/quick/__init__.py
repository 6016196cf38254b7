"""`toolcell call`, lists and completions without the libraries that take most of their time: asyncio, protobuf's, typer.

What a command loads is what it costs: the whole command takes a quarter of a second before its first request to the daemon.
A call is a loop around one socket: `plan` reads the command line, `line` speaks gRPC, `call` makes the call on it,
`questions` puts what its tool asks to a person, `signals` has ^C abort it. What it asks and what it prints is what the whole command asks and prints: it opens a session
that ends with the command, calls the tool in it, and offers the services for notes, for an abort and, at a terminal, for
questions; what comes is shown by the same functions.

`lists` shows calls, workers and the status, and `names` completes names of the daemon: each is one `request`.

It serves what most calls are, and leaves the rest to the whole command; `run` returns None then: for an option or an
argument that it does not know, where no daemon runs or it cannot be dialled, for a tool that the catalog does not have
yet, for arguments that do not fit, and for a list with `--json`. None means that no call was sent: a session without a
call is all that the daemon has seen. Once the call is sent, its end is reported here, whatever happens.
"""

from __future__ import annotations

from toolcell.cli._ui.streams import leave_output

from .plan import Unserved, read_plan
from .signals import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import QuickPlan


def run(words: Sequence[str]) -> int | None:
    """Run a command line, without the name of the program; return its exit code.

    None if it is left to the whole command; then nothing has happened that a second run would repeat.
    """
    try:
        found = read_plan(words)
        return None if found is None else _run(found)
    except Unserved:
        return None
    except BrokenPipeError:
        leave_output()
        return 0


def completions(instruction: str) -> str | None:
    """Return what a shell is answered; None if it is left to the whole command."""
    from .names import complete

    try:
        return complete(instruction)
    except Unserved:
        return None


def _run(found: QuickPlan) -> int:
    if found.command != "call":
        from .lists import show

        signals = Signals()
        try:
            return show(found)
        finally:
            signals.close()
    from .call import CallOnLine
    from .line import Line

    address, token, directory = found.addressed()
    given, timeout_seconds = found.given()
    signals = Signals()
    line = Line(address, token, signals.pipe)
    try:
        return CallOnLine(found, line, signals).run(directory, given, timeout_seconds)
    finally:
        line.close()
        signals.close()
