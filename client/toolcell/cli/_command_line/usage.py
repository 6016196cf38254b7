"""Runs the command line, and reports what is wrong with it as every other failure of the command.

typer would print such an error itself: unwrapped, below the usage of the command, and with `--json` no object.
"""

from __future__ import annotations

import sys
from typing import Any

import typer

from toolcell.cli._command_line.help import USAGE_ERROR
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.options import report


def run(app: typer.Typer) -> int:
    """Run the command line of this process; return its exit code."""
    try:
        return app(prog_name="toolcell", standalone_mode=False) or Exit.OK
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help, which is wrapped already
            error.show()
            return Exit.USAGE
        return report(_failure(error), "--json" in sys.argv)


def _failure(error: Any) -> Failure:
    message = error.format_message()
    if not message.endswith((".", "?")):
        message += "."
    return Misuse(message, f"See: {error.ctx.command_path} --help")
