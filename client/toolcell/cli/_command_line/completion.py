"""`toolcell completion` and what it completes: commands, options, names of tools, ids of calls and sessions.

Names and ids are those of the daemon that runs; none is started, and without one there are no suggestions.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterable
from typing import Final

import typer

from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Misuse

SHELLS: Final = ("bash", "zsh", "fish")
NO_SPACE: Final = "[[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null"
"""After `name=` comes its value; outside of a completion, as in a test, there is nothing to set."""


def prepare() -> None:
    """Make Typer answer the shells, which it does only for commands with its own options for that."""
    from typer.completion import get_completion_inspect_parameters

    get_completion_inspect_parameters()


def completion(context: CommandContext, shell: str) -> Exit:
    """Print what makes a shell ask for completions."""
    if shell not in SHELLS:
        raise Misuse(f"There is no completion for {shell!r}.", f"Take one of: {', '.join(SHELLS)}")
    from typer.completion import shell_complete
    from typer.main import get_command

    from toolcell.cli import COMPLETE

    from .app import app

    prepare()
    if context.as_json:
        raise Misuse("A script for a shell is no JSON.", "Leave out --json.")
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        shell_complete(get_command(app), {}, "toolcell", COMPLETE, f"source_{shell}")
    script = written.getvalue()
    if shell == "bash":
        script = script.replace("    return 0\n", f"    {NO_SPACE}\n    return 0\n")
    sys.stdout.write(script)
    return Exit.OK


def shells(incomplete: str) -> list[str]:
    return _beginning(incomplete, SHELLS)


def hosts(incomplete: str) -> list[str]:
    """Suggest hosts of MCP servers."""
    from toolcell.cli.adapters.mcp_install.hosts import HOSTS

    return _beginning(incomplete, HOSTS)


def kinds(incomplete: str) -> list[str]:
    """Suggest kinds of tools."""
    from toolcell.cli.authoring.new import KINDS

    return _beginning(incomplete, KINDS)


def _of_daemon(*kinds: str) -> Callable[[typer.Context, str], list[str]]:
    """Return what suggests names and ids of these kinds."""

    def suggest(context: typer.Context, incomplete: str) -> list[str]:
        return [name for kind in kinds for name in _beginning(incomplete, _asked(context, kind))]

    return suggest


tools = _of_daemon("tools")
calls = _of_daemon("calls")
tools_and_calls = _of_daemon("tools", "calls")
sessions = _of_daemon("sessions")


def _beginning(incomplete: str, known: Iterable[str]) -> list[str]:
    from toolcell.cli.calls.quick.names import beginning  # late: only where a shell asks

    return beginning(incomplete, known)


def _asked(context: typer.Context, kind: str) -> Iterable[str]:
    """Ask the daemon that runs; whatever goes wrong, there is nothing to suggest."""
    here = [context.params, context.parent.params if context.parent else {}]
    socket = next((options["socket"] for options in here if options.get("socket")), None)
    directory = next((options["directory"] for options in here if options.get("directory")), None)
    with contextlib.suppress(Exception):
        from toolcell.cli.calls.quick.names import names

        if directory:
            os.chdir(directory)
        return names(kind, socket)
    return ()
