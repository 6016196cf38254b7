"""Running tools, and reading what they return."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from toolcell.cli._command_line import completion as completing
from toolcell.cli._command_line.declaring import AllowAll, Arguments, section, time_limit, verb
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.options import Ending

app = section("Run tools")


@verb(app)
def call(
    context: CommandContext,
    tool: Annotated[
        str,
        Argument(
            help="A tool's name, or a file: ./lint.py, ./orders.py:total.", autocompletion=completing.tools
        ),
    ],
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="key=value",
            help="key=text, key=@FILE for the text of a file, key=@- for stdin, 'key:=JSON' or key:=@FILE; repeat a key to pass an array.",
        ),
    ] = None,
    arguments: Arguments = None,
    timeout: Annotated[
        float | None,
        Option(
            metavar="S", parser=time_limit, help='Time limit including the queue: seconds, or "500ms", "2m".'
        ),
    ] = None,
    allow_all: AllowAll = False,
    private: Annotated[
        bool, Option("--private", help="Use a private daemon that ends with the command.")
    ] = False,
    session: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Call in the session of this name, which is kept for later commands: 30 minutes.",
        ),
    ] = None,
    events: Annotated[
        bool, Option("--events", help="Print each event as a line of JSON, the outcome last.")
    ] = False,
) -> Ending:
    """Call a tool. Only its result is written to stdout."""
    from toolcell.cli.calls.call import CallOptions, call

    options = CallOptions(
        tool=tool,
        words=words or (),
        arguments=arguments,
        timeout_seconds=timeout,
        allow_all=allow_all,
        private=private,
        events=events,
        session=session,
    )
    return call(context, options)


@verb(app, "authoring.tools.tools")
def tools(
    context: CommandContext,
    name: Annotated[
        str | None,
        Argument(help="Show this tool with its schema and settings.", autocompletion=completing.tools),
    ] = None,
) -> None:
    """List the tools of the directory, or show one."""


@verb(app, "calls.output.output")
def output(
    context: CommandContext,
    output: Annotated[str, Argument(help="An output id, as the call has printed it, or a prefix of it.")],
    lines: Annotated[
        str | None, Option(metavar="A:B", help="Lines A to B, counted from 1, both included.")
    ] = None,
    extent: Annotated[
        str | None, Option("--bytes", metavar="A:B", help="Bytes A to B, counted from 0, B excluded.")
    ] = None,
) -> None:
    """Print the full text of an output that was truncated."""
