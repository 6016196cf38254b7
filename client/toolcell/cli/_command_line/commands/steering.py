"""Steering what runs."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from toolcell.cli._command_line import completion as completing
from toolcell.cli._command_line.declaring import Reason, ToolName, ToolOrFile, section, verb
from toolcell.cli._ui.connect import CommandContext

app = section("Act on what runs")


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


@verb(app, "operation.control.quarantine")
def quarantine(
    context: CommandContext,
    tool: ToolOrFile,
    reason: Annotated[str, Option(metavar="TEXT", help="Told to who calls it.")] = "",
) -> None:
    """Start no worker for a tool's file until it is released or changed; calls that run go on."""


@verb(app, "operation.control.release")
def release(context: CommandContext, tool: ToolOrFile, reason: Reason = "") -> None:
    """Release a tool from quarantine, so that it can run again."""


@verb(app, "operation.control.drain")
def drain(
    context: CommandContext,
    off: Annotated[bool, Option("--off", help="Accept calls again.")] = False,
    reason: Annotated[str, Option(metavar="TEXT", help="Told to who calls a tool meanwhile.")] = "",
) -> None:
    """Refuse new calls and wait until none runs; the daemon stays so until it is stopped, or --off."""


@verb(app, "operation.status.stop")
def stop(context: CommandContext) -> None:
    """Stop the daemon; running calls get ten seconds to end."""
