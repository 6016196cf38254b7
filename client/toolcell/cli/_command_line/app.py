"""The command-line interface: the commands of `commands`, in the order of `--help`."""

from __future__ import annotations

import typer

from toolcell.cli._command_line.commands import (
    authoring,
    permitting,
    running,
    setup,
    steering,
    subcommands,
    watching,
)
from toolcell.cli._command_line.help import Commands
from toolcell.cli._ui.options import everywhere

app = typer.Typer(
    name="toolcell",
    cls=Commands,
    help="Run the tools that you write for your coding agent, each in a separate process.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.callback()(everywhere)
for section in (running, authoring, watching, steering, permitting, subcommands, setup):
    app.add_typer(section.app)
