"""The commands that call tools, `call`, `dev` and `test`: declared as those of `app` are."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from toolcell._units import optional, parse_seconds
from toolcell.cli._command_line import completion as completing
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.options import Ending, command

ENTRIES_MAX: Final = 10_000
ROWS_MAX: Final = 1000


def seconds(text: str) -> float:
    """Read a duration of the command line."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text} {error}") from None


def entries(text: str) -> int:
    """Read a number of entries of the log."""
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) <= ENTRIES_MAX):
        raise typer.BadParameter(f"{text} is no whole number from 0 to {ENTRIES_MAX}.")
    return int(text)


def rows(text: str) -> int:
    """Read a number of calls or events."""
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 0 < int(text) <= ROWS_MAX):
        raise typer.BadParameter(f"{text} is no whole number from 1 to {ROWS_MAX}.")
    return int(text)


def time_limit(text: str) -> float | None:
    """Read a time limit."""
    try:
        return optional(parse_seconds)(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text} {error}") from None


Whole: TypeAlias = Annotated[
    str | None, typer.Option(metavar="JSON|@FILE|-", help="All arguments as one JSON object; - is stdin.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Answer yes to every question of the tool.")]


@command
def call(
    context: CommandContext,
    tool: Annotated[
        str,
        typer.Argument(
            help="A tool's name, or a file: ./lint.py, ./orders.py:total.", autocompletion=completing.tools
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="key=value",
            help="key=text, key=@FILE for the text of a file, key=@- for stdin, 'key:=JSON' or key:=@FILE; repeat a key to pass an array.",
        ),
    ] = None,
    args: Whole = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S", parser=time_limit, help='Time limit including the queue: seconds, or "500ms", "2m".'
        ),
    ] = None,
    yes: Yes = False,
    private: Annotated[
        bool, typer.Option("--private", help="Use a private daemon that ends with the command.")
    ] = False,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Call in the session of this name, which is kept for later commands: 30 minutes.",
        ),
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="Print each event as a line of JSON, the outcome last.")
    ] = False,
) -> Ending:
    """Call a tool. Only its result is written to stdout."""
    from toolcell.cli.calls import call as calling

    return calling.call(
        context,
        calling.CallOptions(
            tool=tool,
            words=arguments or (),
            arguments=args,
            timeout_seconds=timeout,
            allow_all=yes,
            private=private,
            events=events,
            session=session,
        ),
    )


@command
def dev(
    context: CommandContext,
    tool: Annotated[
        str | None,
        typer.Argument(
            help="Call this tool, or this file, again on each change.", autocompletion=completing.tools
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="key=value", help="Its arguments, as for call.")
    ] = None,
    args: Whole = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S", parser=time_limit, help='Time limit of each call: seconds, or "500ms", "2m".'
        ),
    ] = None,
    yes: Yes = False,
) -> Ending:
    """Watch the tools of the directory: show what each save changes, and run a call again."""
    from toolcell.cli.authoring import dev as watching

    return watching.dev(
        context,
        watching.DevOptions(
            tool=tool, words=arguments or (), arguments=args, timeout_seconds=timeout, allow_all=yes
        ),
    )


@command
def run_tests(
    context: CommandContext,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Test files, or tool files with tests; default: the tests of all tools here."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            parser=time_limit,
            help='Time limit for the tests of each tool: seconds, or "500ms", "2m".',
        ),
    ] = None,
    yes: Yes = False,
) -> Ending:
    """Run the tests of tools, each in the cell of its tool: what the tool may not do, its tests may not."""
    from toolcell.cli.authoring import test as testing

    return testing.test(context, files or (), timeout, allow_all=yes)
