"""Setting up the daemon, and connecting agents and machines to it."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from toolcell.cli._command_line import completion as completing
from toolcell.cli._command_line.declaring import TokenEnv, TokenFile, seconds, section, verb
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.options import Ending, HttpOptions

app = section("Set up")


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


@verb(app, "_command_line.completion.completion")
def completion(
    context: CommandContext,
    shell: Annotated[
        str, Argument(metavar="bash|zsh|fish", help="The shell.", autocompletion=completing.shells)
    ],
) -> None:
    """Print a script that makes a shell complete commands, options, tools and calls."""


@verb(app, "operation.program.version")
def version(context: CommandContext) -> None:
    """Print the version of Toolcell."""
