"""The commands with words below them, `mcp`, `opencode`, `config` and `service`: declared as those of `app` are."""

from __future__ import annotations

from typing import Annotated

import typer

from toolcell.cli._command_line import completion as completing
from toolcell.cli._command_line.calling import entries, time_limit
from toolcell.cli._command_line.help import Command, Commands
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.options import Ending, HttpOptions, command

mcp_app = typer.Typer(cls=Commands, rich_markup_mode=None, add_completion=False)


@mcp_app.callback(invoke_without_command=True)
@command
def mcp(
    context: CommandContext,
    http: Annotated[
        str | None,
        typer.Option(
            "--http", metavar="[HOST:]PORT|PATH", help="Serve over HTTP; clients must send the token."
        ),
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The file with the token; created if missing.")
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable with the token.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            parser=time_limit,
            help='Time limit of each call, for a host that gives up and does not say so: seconds, or "500ms", "2m".',
        ),
    ] = None,
) -> Ending:
    """Run an MCP server on stdin and stdout, or over HTTP."""
    from toolcell.cli.adapters import mcp

    if http is not None:
        return mcp.mcp_over_http(context, HttpOptions(http, token_file, token_env), timeout)
    if token_file is not None or token_env is not None:
        raise Failure(Exit.USAGE, "usage", "A token is only used with HTTP.", "Add --http PORT.")
    return mcp.mcp(context, timeout)


@mcp_app.command(cls=Command)
@command
def install(
    context: CommandContext,
    host: Annotated[
        str,
        typer.Argument(
            metavar="HOST",
            help="claude, copilot, opencode, cursor, vscode, codex, gemini, qwen, claude-desktop, windsurf, zed or goose.",
            autocompletion=completing.hosts,
        ),
    ],
    write: Annotated[
        bool, typer.Option("--write", help="Write the entry into the host's configuration file.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the entry from the host's configuration file.")
    ] = False,
    project: Annotated[
        bool,
        typer.Option(
            "--project",
            help="Use the configuration file of the project in this directory, in place of the user's.",
        ),
    ] = False,
) -> Ending:
    """Print the configuration that makes a host start `toolcell mcp`, or write it."""
    from toolcell.cli.adapters.mcp_install import install

    return install.install(context, host, write=write, remove=remove, project=project)


opencode_app = typer.Typer(cls=Commands, rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@opencode_app.callback()
@command
def opencode(context: CommandContext) -> Ending:  # noqa: ARG001  # it only has the options that stand before a word
    """Make the tools native tools of OpenCode, by a plugin."""
    return Exit.OK


@opencode_app.command("install", cls=Command)
@command
def install_plugin(
    context: CommandContext,
    project: Annotated[
        bool,
        typer.Option("--project", help="Write it for the project in this directory, to .opencode/plugins."),
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete the file that the command has written.")
    ] = False,
) -> Ending:
    """Write a file that makes OpenCode load the plugin, for all projects or for this one."""
    from toolcell.cli.adapters import opencode

    return opencode.install(context, project=project, remove=remove)


@opencode_app.command(cls=Command)
@command
def path(context: CommandContext) -> Ending:
    """Print the path of the plugin."""
    from toolcell.cli.adapters import opencode

    return opencode.path(context)


config_app = typer.Typer(cls=Commands, rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@config_app.callback()
@command
def config(context: CommandContext) -> Ending:  # noqa: ARG001  # it only has the options that stand before a word
    """Show the configuration, check it, or change it."""
    return Exit.OK


@config_app.command(cls=Command)
@command
def show(context: CommandContext) -> Ending:
    """Print every value of the configuration, and the file and line that sets it."""
    from toolcell.cli.operation import config

    return config.show(context)


@config_app.command("check", cls=Command)
@command
def check_config(
    context: CommandContext,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Check these files in place of the user's; a later one overrides an earlier one."
        ),
    ] = None,
) -> Ending:
    """Report errors in the configuration, and what is allowed but probably a mistake."""
    from toolcell.cli.operation import config

    return config.check(context, files or ())


@config_app.command("set", cls=Command)
@command
def set_key(
    context: CommandContext,
    key: Annotated[str, typer.Argument(help="The key, dotted: tool.NAME.memory.")],
    value: Annotated[str, typer.Argument(help="The value, as TOML has it; text needs no quotes.")],
) -> Ending:
    """Set a key of the user's configuration, and have a running daemon read it."""
    from toolcell.cli.operation import config

    return config.set_key(context, key, value)


service_app = typer.Typer(cls=Commands, rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@service_app.callback()
@command
def service(context: CommandContext) -> Ending:  # noqa: ARG001  # it only has the options that stand before a word
    """Run the daemon as your service of systemd."""
    return Exit.OK


@service_app.command("install", cls=Command)
@command
def install_service(context: CommandContext) -> Ending:
    """Write the unit with the paths of this installation, and start it now and at each login."""
    from toolcell.cli.operation import service

    return service.install(context)


@service_app.command("uninstall", cls=Command)
@command
def uninstall_service(context: CommandContext) -> Ending:
    """Stop the service and delete its unit."""
    from toolcell.cli.operation import service

    return service.uninstall(context)


@service_app.command("status", cls=Command)
@command
def service_status(context: CommandContext) -> Ending:
    """Show whether the service is installed and active, and how often it was restarted."""
    from toolcell.cli.operation import service

    return service.status(context)


@service_app.command("logs", cls=Command)
@command
def service_logs(
    context: CommandContext,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines.")] = False,
    count: Annotated[
        int | None,
        typer.Option("-n", metavar="N", parser=entries, help="Show the last N lines; default: 100."),
    ] = None,
) -> Ending:
    """Show what the service has logged to the journal, also before it started to serve."""
    from toolcell.cli.operation import service

    return service.logs(context, count, follow=follow)
