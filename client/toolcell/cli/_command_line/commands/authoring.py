"""Writing tools, and trying them."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from toolcell.cli._command_line import completion as completing
from toolcell.cli._command_line.declaring import (
    AllowAll,
    Arguments,
    ProjectDirectory,
    section,
    time_limit,
    verb,
)
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.options import Ending

app = section("Write tools")


@verb(app, "authoring.new.new")
def new(
    context: CommandContext,
    kind: Annotated[
        str,
        Argument(
            metavar="KIND",
            help="python, json, factory, fastmcp or typescript.",
            autocompletion=completing.kinds,
        ),
    ],
    file: Annotated[
        str | None, Argument(help="A path, or a name for the directory of that kind; default: hello.")
    ] = None,
) -> None:
    """Write an example of a kind of tool and print the command that calls it."""


@verb(app, "authoring.new.init")
def init(
    context: CommandContext,
    file: Annotated[
        str | None, Argument(help="A path, or a name below .toolcell/tools; default: hello.")
    ] = None,
) -> None:
    """Write an example tool and print the command that calls it."""


@verb(app, "authoring.prepare.prepare")
def prepare(
    context: CommandContext,
    project: ProjectDirectory = ".",
    remove_unused: Annotated[
        bool,
        Option(
            "--remove-unused",
            help="Install nothing; remove the packages that no tool file asks for any more.",
        ),
    ] = False,
) -> None:
    """Install the packages that the tools of a directory ask for."""


@verb(app, "authoring.tools.check")
def check(
    context: CommandContext,
    files: Annotated[list[str] | None, Argument(help="Check only these files, in any directory.")] = None,
) -> None:
    """Load the tool files and report what is broken."""


@verb(app)
def dev(
    context: CommandContext,
    tool: Annotated[
        str | None,
        Argument(help="Call this tool, or this file, again on each change.", autocompletion=completing.tools),
    ] = None,
    words: Annotated[
        list[str] | None, Argument(metavar="key=value", help="Its arguments, as for call.")
    ] = None,
    arguments: Arguments = None,
    timeout: Annotated[
        float | None,
        Option(metavar="S", parser=time_limit, help='Time limit of each call: seconds, or "500ms", "2m".'),
    ] = None,
    allow_all: AllowAll = False,
) -> Ending:
    """Watch the tools of the directory: show what each save changes, and run a call again."""
    from toolcell.cli.authoring.dev import DevOptions, dev

    options = DevOptions(
        tool=tool, words=words or (), arguments=arguments, timeout_seconds=timeout, allow_all=allow_all
    )
    return dev(context, options)


@verb(app, "authoring.test.test", name="test")
def run_tests(
    context: CommandContext,
    files: Annotated[
        list[str] | None,
        Argument(help="Test files, or tool files with tests; default: the tests of all tools here."),
    ] = None,
    timeout_seconds: Annotated[
        float | None,
        Option(
            "--timeout",
            metavar="S",
            parser=time_limit,
            help='Time limit for the tests of each tool: seconds, or "500ms", "2m".',
        ),
    ] = None,
    allow_all: AllowAll = False,
) -> None:
    """Run the tests of tools, each in the cell of its tool: what the tool may not do, its tests may not."""
