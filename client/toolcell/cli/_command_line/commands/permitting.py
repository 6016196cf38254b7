"""Deciding what tools may reach."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from toolcell.cli._command_line.declaring import ProjectDirectory, ToolName, section, verb
from toolcell.cli._ui.connect import CommandContext

app = section("Decide what tools may reach")


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
    server: Annotated[
        str | None,
        Option(
            "--server",
            metavar="NAME",
            help="Show how the tools of an MCP server of yours have changed, and accept it.",
        ),
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Grant what is asked for without a question.")] = False,
) -> None:
    """Show what a project's tools ask for, and grant it after a question."""


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


@verb(app, "operation.trust.doctor")
def doctor(context: CommandContext) -> None:
    """Show which sandbox layers this host supports, and what is missing."""
