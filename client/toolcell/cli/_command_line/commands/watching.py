"""Watching the daemon, the calls and the tools."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from toolcell.cli._command_line import completion as completing
from toolcell.cli._command_line.declaring import (
    AnySession,
    AnyTool,
    Limit,
    Since,
    Until,
    entries,
    seconds,
    section,
    verb,
)
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.options import Ending, HttpOptions

app = section("See what happens")


@verb(app, "operation.status.status")
def status(context: CommandContext) -> None:
    """Show whether a daemon runs, what it does, and where its files are."""


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
