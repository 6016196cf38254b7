"""The words of the command line: each command, its arguments and options, and where it goes from there.

What a command needs is imported when it runs: `toolcell version` and `--help` load neither grpc nor rich.
"""

from __future__ import annotations

from typing import Annotated

import typer

from toolcell._units import optional, parse_seconds
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.options import Ending, command, everywhere

__all__ = ["app"]

app = typer.Typer(
    name="toolcell",
    help="Runs the tools that you write for your coding agent, each in a process of its own.",
    epilog="Exit codes: 0 ok, 1 the tool failed, 2 command line or arguments, 3 refused or denied, 4 crashed, "
    "5 a limit, 69 no daemon, 70 our own fault, 124 timed out, 130 aborted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.callback()(everywhere)


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text} {error}") from None


def _timeout(text: str) -> float | None:
    try:
        return optional(parse_seconds)(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text} {error}") from None


@app.command()
@command
def call(
    context: CommandContext,
    tool: Annotated[str, typer.Argument(help="A tool's name, or a file: ./lint.py, ./orders.py:total.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="key=value",
            help="key=text, key=@FILE, key=@-, 'key:=JSON', key:=@FILE; twice is an array.",
        ),
    ] = None,
    args: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE|-", help="All arguments as client object.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="S", parser=_timeout, help='Seconds, or "500ms", "2m"; the queue included.'),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Allow whatever the tool asks.")] = False,
    private: Annotated[bool, typer.Option("--private", help="By a daemon of its own.")] = False,
    events: Annotated[
        bool, typer.Option("--events", help="Print each event as a line of JSON, the outcome last.")
    ] = False,
) -> Ending:
    """Call a tool; its result goes to stdout, alone."""
    from . import call as calling

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
        ),
    )


@app.command()
@command
def tools(
    context: CommandContext,
    name: Annotated[str | None, typer.Argument(help="One tool, with its schema and settings.")] = None,
) -> Ending:
    """What the directory sees."""
    from . import tools

    return tools.tools(context, name)


@app.command()
@command
def check(
    context: CommandContext,
    files: Annotated[list[str] | None, typer.Argument(help="Only these, wherever they are.")] = None,
) -> Ending:
    """Load the tool files and report what is broken."""
    from . import tools

    return tools.check(context, files or ())


@app.command()
@command
def calls(
    context: CommandContext,
    call: Annotated[str | None, typer.Argument(help="A call's id or its beginning.")] = None,
) -> Ending:
    """Running and recent calls, or one call's whole story."""
    from . import calls as listing

    return listing.calls(context, call)


@app.command()
@command
def sessions(
    context: CommandContext,
    session: Annotated[str | None, typer.Argument(help="A session's id or its beginning.")] = None,
) -> Ending:
    """The sessions, or one with its calls."""
    from . import calls as listing

    return listing.sessions(context, session)


@app.command()
@command
def ps(context: CommandContext) -> Ending:
    """The workers."""
    from . import calls as listing

    return listing.ps(context)


@app.command()
@command
def output(
    context: CommandContext,
    output: Annotated[str, typer.Argument(help="An output's id or its beginning.")],
    lines: Annotated[str | None, typer.Option(metavar="A:B", help="Lines, from 1, both included.")] = None,
    extent: Annotated[
        str | None, typer.Option("--bytes", metavar="A:B", help="Bytes, from 0, without B.")
    ] = None,
) -> Ending:
    """An output that was cut, whole."""
    from . import output as reading

    return reading.output(context, output, lines, extent)


@app.command()
@command
def logs(
    context: CommandContext,
    subject: Annotated[
        str | None, typer.Argument(metavar="[TOOL|CALL]", help="Only of this tool or call.")
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what comes.")] = False,
) -> Ending:
    """What tools printed and logged, with tracebacks."""
    from . import output as reading

    return reading.logs(context, subject, follow)


@app.command()
@command
def abort(
    context: CommandContext,
    calls: Annotated[list[str], typer.Argument(help="Calls, by id or its beginning.")],
) -> Ending:
    """Stop calls."""
    from . import control

    return control.abort(context, calls)


@app.command()
@command
def reload(context: CommandContext) -> Ending:
    """Read the configuration and the tools again."""
    from . import control

    return control.reload(context)


@app.command()
@command
def restart(
    context: CommandContext,
    tool: Annotated[str | None, typer.Argument(help="Only those with the file of this tool.")] = None,
) -> Ending:
    """Retire the workers, so that the next call gets a new one."""
    from . import control

    return control.restart(context, tool)


@app.command()
@command
def trust(
    context: CommandContext,
    project: Annotated[str, typer.Argument(metavar="[DIR]", help="A project; default where you are.")] = ".",
    digest: Annotated[bool, typer.Option("--digest", help="Only its code as it is now.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Show what its tools ask for, and grant nothing.")
    ] = False,
    everything: Annotated[bool, typer.Option("--list", help="The projects that are trusted.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Trust it no longer.")] = False,
) -> Ending:
    """Show what a project's tools ask for, and grant it."""
    from . import trust

    if everything:
        return trust.trusted(context)
    return trust.trust(context, project, pinned=digest, show=show, revoke=revoke)


@app.command()
@command
def doctor(context: CommandContext) -> Ending:
    """What this host can hold tools to, layer by layer, and what is missing."""
    from . import trust

    return trust.doctor(context)


@app.command()
@command
def release(
    context: CommandContext, tool: Annotated[str, typer.Argument(help="A tool, or the path of its file.")]
) -> Ending:
    """Let a tool that was shut out because its workers died run again."""
    from . import control

    return control.release(context, tool)


@app.command()
@command
def serve(
    context: CommandContext,
    state: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where outputs and records are kept.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="A configuration in place of the user's.")
    ] = None,
    idle_exit: Annotated[
        float | None,
        typer.Option(metavar="S", parser=_seconds, help="End after so long without a session."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", hidden=True)] = False,  # for the plugin of OpenCode
) -> Ending:
    """Be the daemon, in the foreground."""
    from . import init

    return init.serve(context, state, config, idle_exit, detach=detach)


mcp_app = typer.Typer(rich_markup_mode=None, add_completion=False)
app.add_typer(mcp_app, name="mcp")


@mcp_app.callback(invoke_without_command=True)
@command
def mcp(
    context: CommandContext,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="[HOST:]PORT", help="Over HTTP, for whoever has the token."),
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The token's file, made if it is not there.")
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable that has the token.")
    ] = None,
) -> Ending:
    """Be an MCP server on stdin and stdout, for a host that starts it; or over HTTP."""
    from . import mcp

    if http is not None:
        return mcp.mcp_over_http(context, mcp.HttpOptions(http, token_file, token_env))
    if token_file is not None or token_env is not None:
        raise Failure(Exit.USAGE, "usage", "A token is for HTTP.", "Add --http PORT.")
    return mcp.mcp(context)


@mcp_app.command()
@command
def install(
    context: CommandContext,
    host: Annotated[str, typer.Argument(metavar="claude|copilot|opencode|cursor|vscode")],
    write: Annotated[bool, typer.Option("--write", help="Put it into the host's file.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take it out of the host's file again.")] = False,
) -> Ending:
    """Print what a host is to be told so that it starts `toolcell mcp`, or write it."""
    from ._mcp_install import install

    return install.install(context, host, write=write, remove=remove)


@app.command()
@command
def init(
    context: CommandContext,
    file: Annotated[
        str | None, typer.Argument(help="A path, or a name below .toolcell/tools; default hello.")
    ] = None,
) -> Ending:
    """Write a tool that works, and say how to call it."""
    from . import init

    return init.init(context, file)


@app.command()
@command
def version(context: CommandContext) -> Ending:
    """Which Toolcell this is."""
    from . import init

    return init.version(context)
