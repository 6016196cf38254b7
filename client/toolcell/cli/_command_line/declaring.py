"""How a command is declared: a function whose parameters are its words, and the place of the function that does it.

That one lies in another module of `toolcell.cli`, is imported when the command runs, and takes the words under the names
that the declaration gives them; a test compares the two. A declaration that has to do more has a body.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, Final, TypeAlias

import typer
from typer import Argument, Option

from toolcell._units import optional, parse_seconds
from toolcell.cli._command_line import completion
from toolcell.cli._command_line.help import Command, Commands
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli._ui.options import Ending, command

Declared: TypeAlias = "Callable[..., Ending] | Callable[..., None]"

ENTRIES_MAX: Final = 10_000
ROWS_MAX: Final = 1000


def verb(app: typer.Typer, place: str = "", *, name: str | None = None) -> Callable[[Declared], Declared]:
    """Make a command of a declaration.

    Args:
        app: The commands that it joins.
        place: The function that does it, as "operation.control.abort"; default: the declaration does it itself.
        name: Its word on the command line; default: the name of the declaration.
    """

    def declare(declared: Declared) -> Declared:
        does: Any = functools.wraps(declared)(functools.partial(_do, place)) if place else declared
        app.command(name, cls=Command, rich_help_panel=app.rich_help_panel)(command(does))
        return declared

    return declare


def section(heading: str) -> typer.Typer:
    """Return the commands that stand below one heading in `--help`, in the order in which they are declared."""
    return typer.Typer(rich_help_panel=heading)


def group(text: str) -> typer.Typer:
    """Return commands with a word before them, which alone shows its help."""

    def options_only(context: CommandContext) -> Ending:  # noqa: ARG001
        return Exit.OK

    made = typer.Typer(
        cls=Commands, help=text, rich_markup_mode=None, add_completion=False, no_args_is_help=True
    )
    made.callback(help=text)(command(options_only))
    return made


def _do(place: str, context: CommandContext, **words: Any) -> Ending:
    module, _, function = place.rpartition(".")
    ending: Ending = getattr(import_module(f"toolcell.cli.{module}"), function)(context, **words)
    return ending


def seconds(text: str) -> float:
    """Read a duration of the command line."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text} {error}") from None


def time_limit(text: str) -> float | None:
    try:
        return optional(parse_seconds)(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text} {error}") from None


def entries(text: str) -> int:
    """Read a number of entries of the log."""
    return _whole(text, 0, ENTRIES_MAX)


def rows(text: str) -> int:
    """Read a number of calls or events."""
    return _whole(text, 1, ROWS_MAX)


def _whole(text: str, least: int, most: int) -> int:
    if not (
        text.isascii() and text.isdigit() and len(text) <= len(str(most)) + 1 and least <= int(text) <= most
    ):
        raise typer.BadParameter(f"{text} is no whole number from {least} to {most}.")
    return int(text)


# Words of several commands

AnyTool: TypeAlias = Annotated[
    str, Option("--tool", help="Only of this tool.", autocompletion=completion.tools)
]
AnySession: TypeAlias = Annotated[
    str, Option("--session", help="Only of this session.", autocompletion=completion.sessions)
]
Since: TypeAlias = Annotated[
    float | None,
    Option(metavar="S", parser=seconds, help='Only of the last S seconds, or "10m", "2h", "7d".'),
]
Until: TypeAlias = Annotated[
    float | None, Option(metavar="S", parser=seconds, help="Only of before that time ago.")
]
Limit: TypeAlias = Annotated[
    int | None,
    Option("-n", metavar="N", parser=rows, help="At most N, up to 1000; default: 100.", show_default=False),
]
ToolName: TypeAlias = Annotated[str, Argument(help="A tool name.", autocompletion=completion.tools)]
ToolOrFile: TypeAlias = Annotated[
    str, Argument(help="A tool name, or the path of its file.", autocompletion=completion.tools)
]
Reason: TypeAlias = Annotated[str, Option(metavar="TEXT", help="Kept in the audit.")]
ProjectDirectory: TypeAlias = Annotated[
    str,
    Argument(metavar="[DIR]", help="The project directory; default: the current one.", show_default=False),
]
TokenFile: TypeAlias = Annotated[
    str | None, Option(metavar="FILE", help="The file with the token; created if missing.")
]
TokenEnv: TypeAlias = Annotated[
    str | None, Option(metavar="NAME", help="The environment variable with the token.")
]
Arguments: TypeAlias = Annotated[
    str | None, Option("--args", metavar="JSON|@FILE|-", help="All arguments as one JSON object; - is stdin.")
]
AllowAll: TypeAlias = Annotated[bool, Option("--yes", help="Answer yes to every question of the tool.")]
