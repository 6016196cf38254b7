"""The command-line interface: every command with its words, and the function that does it."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument, Option

from toolcell.cli._command_line import completion as completing
from toolcell.cli._command_line.declaring import (
    AllowAll,
    AnySession,
    AnyTool,
    Arguments,
    Limit,
    ProjectDirectory,
    Reason,
    Since,
    TokenEnv,
    TokenFile,
    ToolName,
    ToolOrFile,
    Until,
    entries,
    seconds,
    time_limit,
    verb,
)
from toolcell.cli._command_line.help import Commands
from toolcell.cli._command_line.subcommands import config_app, mcp_app, opencode_app, service_app
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.options import Ending, HttpOptions, everywhere

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
for name, words in (
    ("mcp", mcp_app),
    ("opencode", opencode_app),
    ("config", config_app),
    ("service", service_app),
):
    app.add_typer(words, name=name)


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


@verb(app, "authoring.tools.tools")
def tools(
    context: CommandContext,
    name: Annotated[
        str | None,
        Argument(help="Show this tool with its schema and settings.", autocompletion=completing.tools),
    ] = None,
) -> None:
    """List the tools of the directory, or show one."""


@verb(app, "authoring.tools.check")
def check(
    context: CommandContext,
    files: Annotated[list[str] | None, Argument(help="Check only these files, in any directory.")] = None,
) -> None:
    """Load the tool files and report what is broken."""


@verb(app, "operation.status.status")
def status(context: CommandContext) -> None:
    """Show whether a daemon runs, what it does, and where its files are."""


@verb(app, "calls.listing.calls")
def calls(
    context: CommandContext,
    call: Annotated[
        str | None, Argument(help="A call id or a prefix of it.", autocompletion=completing.calls)
    ] = None,
    tool: AnyTool = "",
    session: AnySession = "",
    agent: Annotated[str, Option(help="Only of this agent, as AGENT shows it.")] = "",
    outcome: Annotated[
        str, Option(metavar="KIND|CAUSE", help="Only those that ended so, as STATE shows it.")
    ] = "",
    since: Since = None,
    until: Until = None,
    failed: Annotated[bool, Option("--failed", help="Only those that did not end well.")] = False,
    limit: Limit = None,
    follow: Annotated[bool, Option("-f", "--follow", help="Keep printing calls as they end.")] = False,
) -> None:
    """List running and earlier calls, or show the history of one."""


@verb(app, "calls.events.events")
def events(
    context: CommandContext,
    kind: Annotated[
        str, Option("--type", metavar="TYPE", help='Only of this type, such as "worker.dead".')
    ] = "",
    tool: AnyTool = "",
    session: AnySession = "",
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    follow: Annotated[bool, Option("-f", "--follow", help="Keep printing new events.")] = False,
) -> None:
    """Show what has happened: sessions, deaths of workers, starts and ends of the daemon, decisions."""


@verb(app, "calls.events.audit")
def audit(
    context: CommandContext,
    tool: AnyTool = "",
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    follow: Annotated[bool, Option("-f", "--follow", help="Keep printing new decisions.")] = False,
) -> None:
    """Show what people have decided: trust, aborts, reloads and the like."""


@verb(app, "calls.listing.sessions")
def sessions(
    context: CommandContext,
    session: Annotated[
        str | None, Argument(help="A session id or a prefix of it.", autocompletion=completing.sessions)
    ] = None,
) -> None:
    """List the sessions, or show one with its calls."""


@verb(app, "calls.listing.ps")
def ps(context: CommandContext) -> None:
    """List the worker processes."""


@verb(app, "operation.top.top.top")
def top(
    context: CommandContext,
    shown: Annotated[
        str, Option("--list", metavar="LIST", help="calls, workers, sessions, tools or deaths.")
    ] = "calls",
    sort: Annotated[
        str, Option(metavar="KEY", help="age, processor, memory, output, calls, failed, time or name.")
    ] = "",
    text: Annotated[str, Option("--filter", metavar="TEXT", help="Only rows with this text.")] = "",
    limit: Limit = None,
    every: Annotated[
        float | None, Option(metavar="S", parser=seconds, help="Look every S seconds; default: 1.")
    ] = None,
    once: Annotated[bool, Option("--once", help="Print one table and end.")] = False,
) -> None:
    """Watch what goes on: calls, workers, sessions, tools and deaths, with keys that steer them."""


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


@verb(app, "calls.output.logs")
def logs(
    context: CommandContext,
    subject: Annotated[
        str | None,
        Argument(
            metavar="[TOOL|CALL]",
            help="Show only this tool or call.",
            autocompletion=completing.tools_and_calls,
        ),
    ] = None,
    follow: Annotated[bool, Option("-f", "--follow", help="Keep printing new lines.")] = False,
    count: Annotated[
        int | None,
        Option(
            "-n",
            metavar="N",
            parser=entries,
            help="Show the last N entries, at most 10000; default: 100, and all with --since.",
        ),
    ] = None,
    since: Annotated[
        float | None,
        Option(metavar="S", parser=seconds, help='Only entries of the last S seconds, or "10m", "2h".'),
    ] = None,
) -> None:
    """Show what tools printed and logged, with tracebacks."""


@verb(app, "operation.control.abort")
def abort(
    context: CommandContext,
    calls: Annotated[
        list[str] | None, Argument(help="Call ids or prefixes of them.", autocompletion=completing.calls)
    ] = None,
    tool: Annotated[str, Option(help="All calls of this tool.", autocompletion=completing.tools)] = "",
    session: Annotated[
        str, Option(help="All calls of this session, or of --tool in it.", autocompletion=completing.sessions)
    ] = "",
    every: Annotated[bool, Option("--all", help="All calls of all sessions.")] = False,
    reason: Annotated[str, Option(metavar="TEXT", help="Told to the agents in the outcomes.")] = "",
) -> None:
    """Abort calls that wait or run."""


@verb(app, "operation.control.disable")
def disable(
    context: CommandContext,
    tool: ToolName,
    reason: Annotated[
        str, Option(metavar="TEXT", help="Told to who calls it, and in the outcomes of its calls.")
    ] = "",
) -> None:
    """Take a tool out of use everywhere: end its calls and refuse new ones, until it is enabled."""


@verb(app, "operation.control.enable")
def enable(
    context: CommandContext,
    tool: Annotated[str, Argument(help="The name of a disabled tool.", autocompletion=completing.tools)],
    reason: Reason = "",
) -> None:
    """Let a disabled tool be offered and run again."""


@verb(app, "operation.control.reload")
def reload(context: CommandContext) -> None:
    """Reload the configuration and rescan the tools."""


@verb(app, "operation.control.restart")
def restart(
    context: CommandContext,
    tool: Annotated[
        str | None,
        Argument(help="Retire only the workers of this tool's file.", autocompletion=completing.tools),
    ] = None,
    reason: Reason = "",
) -> None:
    """Retire the workers, so that the next call starts a new one."""


@verb(app, "operation.trust.explain")
def explain(
    context: CommandContext,
    tool: ToolName,
    subject: Annotated[
        str | None,
        Argument(
            metavar="[PATH|HOST|PROGRAM|VARIABLE]",
            help="Tell only whether it may reach this; a path has a slash, a host has a dot, a variable is in capitals.",
        ),
    ] = None,
) -> None:
    """Show what a tool may reach, which rule says so, and what would change it."""


@verb(app, "operation.trust.trust")
def trust(
    context: CommandContext,
    project: ProjectDirectory = ".",
    pinned: Annotated[
        bool, Option("--digest", help="Trust only the current code; a change revokes the trust.")
    ] = False,
    show: Annotated[bool, Option("--show", help="Show what the tools ask for without granting it.")] = False,
    listed: Annotated[bool, Option("--list", help="List the trusted projects.")] = False,
    revoke: Annotated[bool, Option("--revoke", help="Revoke trust.")] = False,
    yes: Annotated[bool, Option("--yes", help="Grant what is asked for without a question.")] = False,
) -> None:
    """Show what a project's tools ask for, and grant it after a question."""


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


@verb(app, "operation.trust.doctor")
def doctor(context: CommandContext) -> None:
    """Show which sandbox layers this host supports, and what is missing."""


@verb(app, "operation.control.release")
def release(context: CommandContext, tool: ToolOrFile, reason: Reason = "") -> None:
    """Release a tool from quarantine, so that it can run again."""


@verb(app, "operation.control.quarantine")
def quarantine(
    context: CommandContext,
    tool: ToolOrFile,
    reason: Annotated[str, Option(metavar="TEXT", help="Told to who calls it.")] = "",
) -> None:
    """Start no worker for a tool's file until it is released or changed; calls that run go on."""


@verb(app, "operation.control.drain")
def drain(
    context: CommandContext,
    off: Annotated[bool, Option("--off", help="Accept calls again.")] = False,
    reason: Annotated[str, Option(metavar="TEXT", help="Told to who calls a tool meanwhile.")] = "",
) -> None:
    """Refuse new calls and wait until none runs; the daemon stays so until it is stopped, or --off."""


@verb(app, "operation.control.log_level", name="log-level")
def log_level(
    context: CommandContext,
    level: Annotated[str, Argument(metavar="debug|info|warning|error", help="The level.")],
    duration: Annotated[
        float | None,
        Option(
            "--for",
            metavar="S",
            parser=seconds,
            help='For how long: seconds, or "10m", "2h"; default: 10m.',
        ),
    ] = None,
) -> None:
    """Have the daemon log more, or less, for a time."""


@verb(app, "operation.backup.backup")
def backup(
    context: CommandContext,
    file: Annotated[str, Argument(metavar="FILE", help="Where to write the backup.")],
    state: Annotated[
        str | None, Option(metavar="DIR", help="The state directory; default: that of the daemon.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Save decisions and records to a file, also while the daemon runs."""


@verb(app, "operation.backup.restore")
def restore(
    context: CommandContext,
    file: Annotated[str, Argument(metavar="FILE", help="The backup.")],
    state: Annotated[
        str | None, Option(metavar="DIR", help="The state directory; default: your own.")
    ] = None,
    force: Annotated[
        bool, Option("--force", help="Replace what is there, and keep it as *.before-restore.")
    ] = False,
) -> None:
    """Put back the decisions and records of a backup; no daemon may run."""


@verb(app, "operation.program.serve")
def serve(
    context: CommandContext,
    state: Annotated[str | None, Option(metavar="DIR", help="The directory for outputs and records.")] = None,
    config: Annotated[
        str | None, Option(metavar="FILE", help="Use this configuration file instead of the user's.")
    ] = None,
    idle_exit_seconds: Annotated[
        float | None,
        Option(
            "--idle-exit",
            metavar="S",
            parser=seconds,
            help='Exit after this time without a session: seconds, or "10m", "2h".',
        ),
    ] = None,
    listen: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="Serve other machines too, and print a code with which one may use this directory.",
        ),
    ] = None,
    detach: Annotated[bool, Option("--detach", hidden=True)] = False,  # for the plugin of OpenCode
) -> None:
    """Run the daemon in the foreground."""


@verb(app, "operation.join.join")
def join(
    context: CommandContext,
    address: Annotated[str, Argument(metavar="HOST:PORT", help="Where the other machine listens.")],
    code: Annotated[str, Argument(metavar="CODE", help="What `toolcell serve --listen` printed there.")],
) -> None:
    """Get to know a machine whose tools are to be used from here, and print its address."""


@verb(app, "operation.status.stop")
def stop(context: CommandContext) -> None:
    """Stop the daemon; running calls get ten seconds to end."""


@verb(app, "adapters.bridge.bridge")
def bridge(context: CommandContext) -> None:
    """Carry calls as JSON lines on stdin and stdout, for adapters in any language."""


@verb(app)
def http(
    context: CommandContext,
    address: Annotated[
        str, Argument(metavar="[HOST:]PORT|PATH", help="Where to listen: a port, or the path of a socket.")
    ] = "8138",
    token_file: TokenFile = None,
    token_env: TokenEnv = None,
) -> Ending:
    """Serve the tools of the directory as JSON over HTTP, for programs of any language."""
    from toolcell.cli.adapters import http

    return http.http(context, HttpOptions(address, token_file, token_env, "http.token", "http "))


@verb(app)
def ui(
    context: CommandContext,
    port: Annotated[str, Argument(metavar="PORT", help="Where to listen, on loopback.")] = "8139",
    operate: Annotated[bool, Option("--operate", help="Make a link whose session may also act.")] = False,
) -> Ending:
    """Serve a page that shows what the daemon does, and print the link that opens it."""
    try:
        from toolcell.cli.page import ui as page
    except ImportError as error:
        from toolcell.cli.adapters.http import missing_extra

        raise missing_extra() from error
    return page.ui(context, HttpOptions(port, default_file="http.token", flag="ui "), may_act=operate)


@verb(app, "authoring.new.init")
def init(
    context: CommandContext,
    file: Annotated[
        str | None, Argument(help="A path, or a name below .toolcell/tools; default: hello.")
    ] = None,
) -> None:
    """Write an example tool and print the command that calls it."""


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


@verb(app, "operation.program.version")
def version(context: CommandContext) -> None:
    """Print the version of Toolcell."""


@verb(app, "_command_line.completion.completion")
def completion(
    context: CommandContext,
    shell: Annotated[
        str, Argument(metavar="bash|zsh|fish", help="The shell.", autocompletion=completing.shells)
    ],
) -> None:
    """Print a script that makes a shell complete commands, options, tools and calls."""
