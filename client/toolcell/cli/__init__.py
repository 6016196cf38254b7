"""The command `toolcell`: a plural noun lists, a noun with a name shows one, a verb acts.

`_command_line` declares the commands, and each imports what it does when it runs: from `calls` (call, calls, sessions, ps,
output, logs), `authoring` (new, init, prepare, tools, check, dev, test), `operation` (status, stop, abort, disable, enable,
reload, restart, quarantine, release, drain, log-level, trust, explain, doctor, config, serve,
service, version) or `adapters` (mcp, http, opencode, bridge).
They share `_ui`: options, connection, terminal, JSON, tables and exit codes.
The command is a client like any other: it never imports the daemon.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

COMPLETE = "_TOOLCELL_COMPLETE"
"""The variable by which a shell asks for completions."""


OUTPUT_FAILED = 74  # `Exit.OUTPUT`


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    # Until a command runs a ^C has nothing to undo. `signal` loads enum first, and a ^C meanwhile would be a traceback.
    signals = __import__("_signal")
    if signals.getsignal(signals.SIGINT) is signals.default_int_handler:
        signals.signal(signals.SIGINT, signals.SIG_DFL)
    from toolcell._platform import unsupported

    if (reason := unsupported(sys.platform)) is not None:
        print(f"toolcell: {reason}", file=sys.stderr)
        sys.exit(69)  # Exit.UNAVAILABLE
    from ._ui.streams import escape_standard_streams, open_standard_streams, why_output_fails

    open_standard_streams()
    escape_standard_streams()
    code: object
    try:
        code = _run()
    except SystemExit as leaving:
        code = leaving.code
    except OSError:
        if not (why := why_output_fails()):
            raise  # a bug: what a command knows of is a Failure
        try:  # noqa: SIM105  # contextlib is not loaded for it
            print(f"toolcell: The output cannot be written: {why}.", file=sys.stderr)
        except OSError:
            pass  # that is full, too
        code = OUTPUT_FAILED
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105
            stream.flush()
        except OSError:
            pass  # the reader has closed the pipe
    # At once: what a command opened, it has closed, and nothing is gained by taking gRPC's threads down one by one.
    os._exit(code or 0)


def _run() -> object:
    """Run the command line; return what `sys.exit` takes. Much takes the short road of `quick`, the rest the whole one."""
    from .calls import SHORT

    instruction = os.environ.get(COMPLETE)
    if instruction is not None or not SHORT.isdisjoint(sys.argv):
        from .calls import quick

        if instruction is None:
            if (code := quick.run(sys.argv[1:])) is not None:
                return code
        elif (text := quick.completions(instruction)) is not None:
            print(text)
            return 0
    from ._command_line.app import app
    from ._command_line.usage import run

    if COMPLETE in os.environ:
        from ._command_line.completion import prepare

        prepare()
    return run(app)
