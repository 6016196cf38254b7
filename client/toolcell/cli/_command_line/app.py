"""The command-line interface: declares every command with its arguments and options, and calls its implementation.

A command imports its implementation when it runs, so that `toolcell version` and `--help` load neither grpc nor rich.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from toolcell.cli._command_line import calling
from toolcell.cli._command_line import completion as completing
from toolcell.cli._command_line.help import Command, Commands
from toolcell.cli._command_line.subcommands import config_app, mcp_app, opencode_app, service_app
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.options import Ending, HttpOptions, command, everywhere

__all__ = ["app"]

ToolOption: TypeAlias = Annotated[
    str, typer.Option("--tool", help="Only of this tool.", autocompletion=completing.tools)
]
SessionOption: TypeAlias = Annotated[
    str, typer.Option("--session", help="Only of this session.", autocompletion=completing.sessions)
]
SinceOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="S", parser=calling.seconds, help='Only of the last S seconds, or "10m", "2h", "7d".'
    ),
]
UntilOption: TypeAlias = Annotated[
    float | None, typer.Option(metavar="S", parser=calling.seconds, help="Only of before that time ago.")
]
LimitOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "-n",
        metavar="N",
        parser=calling.rows,
        help="At most N, up to 1000; default: 100.",
        show_default=False,
    ),
]

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
for name, function in (("call", calling.call), ("dev", calling.dev), ("test", calling.run_tests)):
    app.command(name, cls=Command)(function)


@app.command(cls=Command)
@command
def tools(
    context: CommandContext,
    name: Annotated[
        str | None,
        typer.Argument(help="Show this tool with its schema and settings.", autocompletion=completing.tools),
    ] = None,
) -> Ending:
    """List the tools of the directory, or show one."""
    from toolcell.cli.authoring import tools

    return tools.tools(context, name)


@app.command(cls=Command)
@command
def check(
    context: CommandContext,
    files: Annotated[
        list[str] | None, typer.Argument(help="Check only these files, in any directory.")
    ] = None,
) -> Ending:
    """Load the tool files and report what is broken."""
    from toolcell.cli.authoring import tools

    return tools.check(context, files or ())


@app.command(cls=Command)
@command
def status(context: CommandContext) -> Ending:
    """Show whether a daemon runs, what it does, and where its files are."""
    from toolcell.cli.operation import status as daemon

    return daemon.status(context)


@app.command(cls=Command)
@command
def calls(
    context: CommandContext,
    call: Annotated[
        str | None, typer.Argument(help="A call id or a prefix of it.", autocompletion=completing.calls)
    ] = None,
    tool: ToolOption = "",
    session: SessionOption = "",
    agent: Annotated[str, typer.Option(help="Only of this agent, as AGENT shows it.")] = "",
    outcome: Annotated[
        str, typer.Option(metavar="KIND|CAUSE", help="Only those that ended so, as STATE shows it.")
    ] = "",
    since: SinceOption = None,
    until: UntilOption = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that did not end well.")] = False,
    limit: LimitOption = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing calls as they end.")] = False,
) -> Ending:
    """List running and earlier calls, or show the history of one."""
    from toolcell.cli._command_line import records
    from toolcell.cli.calls import listing

    request = records.calls_request(
        tool=tool,
        session=session,
        agent=agent,
        outcome=outcome,
        failed=failed,
        since=since,
        until=until,
        limit=limit,
    )
    return listing.calls(context, call, request, follow=follow)


@app.command(cls=Command)
@command
def events(
    context: CommandContext,
    kind: Annotated[
        str, typer.Option("--type", metavar="TYPE", help='Only of this type, such as "worker.dead".')
    ] = "",
    tool: ToolOption = "",
    session: SessionOption = "",
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new events.")] = False,
) -> Ending:
    """Show what has happened: sessions, deaths of workers, starts and ends of the daemon, decisions."""
    from toolcell.cli._command_line import records
    from toolcell.cli.calls import events

    request = records.events_request(
        kind=kind, tool=tool, session=session, since=since, until=until, limit=limit
    )
    return events.events(context, request, follow=follow)


@app.command(cls=Command)
@command
def audit(
    context: CommandContext,
    tool: ToolOption = "",
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new decisions.")] = False,
) -> Ending:
    """Show what people have decided: trust, aborts, reloads and the like."""
    from toolcell.cli._command_line import records
    from toolcell.cli.calls import events

    request = records.events_request(kind=events.DECISIONS, tool=tool, since=since, until=until, limit=limit)
    return events.events(context, request, follow=follow)


@app.command(cls=Command)
@command
def sessions(
    context: CommandContext,
    session: Annotated[
        str | None, typer.Argument(help="A session id or a prefix of it.", autocompletion=completing.sessions)
    ] = None,
) -> Ending:
    """List the sessions, or show one with its calls."""
    from toolcell.cli.calls import listing

    return listing.sessions(context, session)


@app.command(cls=Command)
@command
def ps(context: CommandContext) -> Ending:
    """List the worker processes."""
    from toolcell.cli.calls import listing

    return listing.ps(context)


@app.command(cls=Command)
@command
def output(
    context: CommandContext,
    output: Annotated[
        str, typer.Argument(help="An output id, as the call has printed it, or a prefix of it.")
    ],
    lines: Annotated[
        str | None, typer.Option(metavar="A:B", help="Lines A to B, counted from 1, both included.")
    ] = None,
    extent: Annotated[
        str | None, typer.Option("--bytes", metavar="A:B", help="Bytes A to B, counted from 0, B excluded.")
    ] = None,
) -> Ending:
    """Print the full text of an output that was truncated."""
    from toolcell.cli.calls import output as reading

    return reading.output(context, output, lines, extent)


@app.command(cls=Command)
@command
def logs(
    context: CommandContext,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOOL|CALL]",
            help="Show only this tool or call.",
            autocompletion=completing.tools_and_calls,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines.")] = False,
    entries: Annotated[
        int | None,
        typer.Option(
            "-n",
            metavar="N",
            parser=calling.entries,
            help="Show the last N entries, at most 10000; default: 100, and all with --since.",
        ),
    ] = None,
    since: Annotated[
        float | None,
        typer.Option(
            metavar="S", parser=calling.seconds, help='Only entries of the last S seconds, or "10m", "2h".'
        ),
    ] = None,
) -> Ending:
    """Show what tools printed and logged, with tracebacks."""
    from toolcell.cli.calls import output as reading

    return reading.logs(context, subject, follow, entries, since)


@app.command(cls=Command)
@command
def abort(
    context: CommandContext,
    calls: Annotated[
        list[str] | None,
        typer.Argument(help="Call ids or prefixes of them.", autocompletion=completing.calls),
    ] = None,
    tool: Annotated[str, typer.Option(help="All calls of this tool.", autocompletion=completing.tools)] = "",
    session: Annotated[
        str,
        typer.Option(
            help="All calls of this session, or of --tool in it.", autocompletion=completing.sessions
        ),
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="All calls of all sessions.")] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Told to the agents in the outcomes.")] = "",
) -> Ending:
    """Abort calls that wait or run."""
    from toolcell.cli.operation import control

    return control.abort(context, calls or (), tool=tool, session_id=session, every=every, reason=reason)


@app.command(cls=Command)
@command
def disable(
    context: CommandContext,
    tool: Annotated[str, typer.Argument(help="A tool name.", autocompletion=completing.tools)],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Told to who calls it, and in the outcomes of its calls.")
    ] = "",
) -> Ending:
    """Take a tool out of use everywhere: end its calls and refuse new ones, until it is enabled."""
    from toolcell.cli.operation import control

    return control.disable(context, tool, reason)


@app.command(cls=Command)
@command
def enable(
    context: CommandContext,
    tool: Annotated[
        str, typer.Argument(help="The name of a disabled tool.", autocompletion=completing.tools)
    ],
) -> Ending:
    """Let a disabled tool be offered and run again."""
    from toolcell.cli.operation import control

    return control.enable(context, tool)


@app.command(cls=Command)
@command
def reload(context: CommandContext) -> Ending:
    """Reload the configuration and rescan the tools."""
    from toolcell.cli.operation import control

    return control.reload(context)


@app.command(cls=Command)
@command
def restart(
    context: CommandContext,
    tool: Annotated[
        str | None,
        typer.Argument(help="Retire only the workers of this tool's file.", autocompletion=completing.tools),
    ] = None,
) -> Ending:
    """Retire the workers, so that the next call starts a new one."""
    from toolcell.cli.operation import control

    return control.restart(context, tool)


@app.command(cls=Command)
@command
def explain(
    context: CommandContext,
    tool: Annotated[str, typer.Argument(help="A tool name.", autocompletion=completing.tools)],
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH|HOST|PROGRAM|VARIABLE]",
            help="Tell only whether it may reach this; a path has a slash, a host has a dot, a variable is in capitals.",
        ),
    ] = None,
) -> Ending:
    """Show what a tool may reach, which rule says so, and what would change it."""
    from toolcell.cli.operation import trust

    return trust.explain(context, tool, subject or "")


@app.command(cls=Command)
@command
def trust(
    context: CommandContext,
    project: Annotated[
        str,
        typer.Argument(
            metavar="[DIR]", help="The project directory; default: the current one.", show_default=False
        ),
    ] = ".",
    digest: Annotated[
        bool, typer.Option("--digest", help="Trust only the current code; a change revokes the trust.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Show what the tools ask for without granting it.")
    ] = False,
    everything: Annotated[bool, typer.Option("--list", help="List the trusted projects.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke trust.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Grant what is asked for without a question.")] = False,
) -> Ending:
    """Show what a project's tools ask for, and grant it after a question."""
    from toolcell.cli.operation import trust

    if everything:
        return trust.trusted(context)
    return trust.trust(context, project, pinned=digest, show=show, revoke=revoke, yes=yes)


@app.command(cls=Command)
@command
def prepare(
    context: CommandContext,
    project: Annotated[
        str,
        typer.Argument(
            metavar="[DIR]",
            help="The project directory; default: the current one.",
            show_default=False,
        ),
    ] = ".",
    remove_unused: Annotated[
        bool,
        typer.Option(
            "--remove-unused",
            help="Install nothing; remove the packages that no tool file asks for any more.",
        ),
    ] = False,
) -> Ending:
    """Install the packages that the tools of a directory ask for."""
    from toolcell.cli.authoring import prepare

    return prepare.prepare(context, project, remove_unused=remove_unused)


@app.command(cls=Command)
@command
def doctor(context: CommandContext) -> Ending:
    """Show which sandbox layers this host supports, and what is missing."""
    from toolcell.cli.operation import trust

    return trust.doctor(context)


@app.command(cls=Command)
@command
def release(
    context: CommandContext,
    tool: Annotated[
        str, typer.Argument(help="A tool name, or the path of its file.", autocompletion=completing.tools)
    ],
) -> Ending:
    """Release a tool from quarantine, so that it can run again."""
    from toolcell.cli.operation import control

    return control.release(context, tool)


@app.command(cls=Command)
@command
def quarantine(
    context: CommandContext,
    tool: Annotated[
        str, typer.Argument(help="A tool name, or the path of its file.", autocompletion=completing.tools)
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Told to who calls it.")] = "",
) -> Ending:
    """Start no worker for a tool's file until it is released or changed; calls that run go on."""
    from toolcell.cli.operation import control

    return control.quarantine(context, tool, reason)


@app.command(cls=Command)
@command
def drain(
    context: CommandContext,
    off: Annotated[bool, typer.Option("--off", help="Accept calls again.")] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Told to who calls a tool meanwhile.")] = "",
) -> Ending:
    """Refuse new calls and wait until none runs; the daemon stays so until it is stopped, or --off."""
    from toolcell.cli.operation import control

    return control.drain(context, reason, off=off)


@app.command("log-level", cls=Command)
@command
def log_level(
    context: CommandContext,
    level: Annotated[str, typer.Argument(metavar="debug|info|warning|error", help="The level.")],
    duration: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="S",
            parser=calling.seconds,
            help='For how long: seconds, or "10m", "2h"; default: 10m.',
        ),
    ] = None,
) -> Ending:
    """Have the daemon log more, or less, for a time."""
    from toolcell.cli.operation import control

    return control.log_level(context, level, duration)


@app.command(cls=Command)
@command
def serve(
    context: CommandContext,
    state: Annotated[
        str | None, typer.Option(metavar="DIR", help="The directory for outputs and records.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Use this configuration file instead of the user's.")
    ] = None,
    idle_exit: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            parser=calling.seconds,
            help='Exit after this time without a session: seconds, or "10m", "2h".',
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", hidden=True)] = False,  # for the plugin of OpenCode
) -> Ending:
    """Run the daemon in the foreground."""
    from toolcell.cli.operation import program

    return program.serve(context, state, config, idle_exit, detach=detach)


@app.command(cls=Command)
@command
def stop(context: CommandContext) -> Ending:
    """Stop the daemon; running calls get ten seconds to end."""
    from toolcell.cli.operation import status as daemon

    return daemon.stop(context)


app.add_typer(config_app, name="config")
app.add_typer(mcp_app, name="mcp")
app.add_typer(opencode_app, name="opencode")
app.add_typer(service_app, name="service")


@app.command(cls=Command)
@command
def bridge(context: CommandContext) -> Ending:
    """Carry calls as JSON lines on stdin and stdout, for adapters in any language."""
    from toolcell.cli.adapters import bridge

    return bridge.bridge(context)


@app.command(cls=Command)
@command
def http(
    context: CommandContext,
    address: Annotated[
        str,
        typer.Argument(metavar="[HOST:]PORT|PATH", help="Where to listen: a port, or the path of a socket."),
    ] = "8138",
    token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file with the token; created if missing.")
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable with the token.")
    ] = None,
) -> Ending:
    """Serve the tools of the directory as JSON over HTTP, for programs of any language."""
    from toolcell.cli.adapters import http

    return http.http(context, HttpOptions(address, token_file, token_env, "http.token", "http "))


@app.command(cls=Command)
@command
def init(
    context: CommandContext,
    file: Annotated[
        str | None, typer.Argument(help="A path, or a name below .toolcell/tools; default: hello.")
    ] = None,
) -> Ending:
    """Write an example tool and print the command that calls it."""
    from toolcell.cli.authoring import new

    return new.new(context, "python", file, command="toolcell init")


@app.command(cls=Command)
@command
def new(
    context: CommandContext,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="python, json, factory, fastmcp or typescript.",
            autocompletion=completing.kinds,
        ),
    ],
    file: Annotated[
        str | None, typer.Argument(help="A path, or a name for the directory of that kind; default: hello.")
    ] = None,
) -> Ending:
    """Write an example of a kind of tool and print the command that calls it."""
    from toolcell.cli.authoring import new

    return new.new(context, kind, file)


@app.command(cls=Command)
@command
def version(context: CommandContext) -> Ending:
    """Print the version of Toolcell."""
    from toolcell.cli.operation import program

    return program.version(context)


@app.command(cls=Command)
@command
def completion(
    context: CommandContext,
    shell: Annotated[
        str, typer.Argument(metavar="bash|zsh|fish", help="The shell.", autocompletion=completing.shells)
    ],
) -> Ending:
    """Print a script that makes a shell complete commands, options, tools and calls."""
    return completing.print_script(context, shell)
