"""`toolcell completion` and what it completes: commands, options, names of tools, ids of calls and sessions.

Names and ids are those of the daemon that runs; none is started, and without one there are no suggestions.
A shell evaluates what it is given, so only words of letters, digits and a few marks are suggested, without descriptions.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import typer

from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure

if TYPE_CHECKING:
    from toolcell.client._transport.operator import Operator

__all__ = [
    "calls",
    "hosts",
    "kinds",
    "prepare",
    "print_script",
    "sessions",
    "shells",
    "tools",
    "tools_and_calls",
]

SHELLS: Final = ("bash", "zsh", "fish")
SECONDS_MAX: Final = 2.0
"""How long a person waits for suggestions at most."""

_SAFE: Final = re.compile(r"[A-Za-z0-9_.:-]+")


def prepare() -> None:
    """Make Typer answer the shells, which it does only for commands with its own options for that."""
    from typer.completion import get_completion_inspect_parameters

    get_completion_inspect_parameters()


def print_script(context: CommandContext, shell: str) -> Exit:
    """Print what makes a shell ask for completions."""
    if shell not in SHELLS:
        raise Failure(
            Exit.USAGE, "usage", f"There is no completion for {shell!r}.", f"Take one of: {', '.join(SHELLS)}"
        )
    from typer.completion import shell_complete
    from typer.main import get_command

    from toolcell.cli import COMPLETE

    from .app import app

    prepare()
    if context.as_json:
        raise Failure(Exit.USAGE, "usage", "A script for a shell is no JSON.", "Leave out --json.")
    shell_complete(get_command(app), {}, "toolcell", COMPLETE, f"source_{shell}")
    return Exit.OK


def shells(incomplete: str) -> list[str]:
    """Suggest shells."""
    return _beginning(incomplete, SHELLS)


def hosts(incomplete: str) -> list[str]:
    """Suggest hosts of MCP servers."""
    from toolcell.cli.adapters.mcp_install.hosts import HOSTS

    return _beginning(incomplete, HOSTS)


def kinds(incomplete: str) -> list[str]:
    """Suggest kinds of tools."""
    from toolcell.cli.authoring.new import KINDS

    return _beginning(incomplete, KINDS)


def tools(context: typer.Context, incomplete: str) -> list[str]:
    """Suggest the tools of the directory."""
    return _beginning(incomplete, _asked(context, _tools))


def calls(context: typer.Context, incomplete: str) -> list[str]:
    """Suggest calls, running ones first."""
    return _beginning(incomplete, _asked(context, _calls))


def tools_and_calls(context: typer.Context, incomplete: str) -> list[str]:
    """Suggest tools and calls."""
    return [*tools(context, incomplete), *calls(context, incomplete)]


def sessions(context: typer.Context, incomplete: str) -> list[str]:
    """Suggest sessions."""
    return _beginning(incomplete, _asked(context, _sessions))


async def _tools(client: Operator) -> Iterable[str]:
    from toolcell_proto.v1 import toolcell_pb2 as pb

    answer = await client.ask(client.tools.ListTools, pb.ListToolsRequest(directory=os.getcwd()))
    return (tool.name for tool in answer.catalog.tools)


async def _calls(client: Operator) -> Iterable[str]:
    from toolcell_proto.v1 import operator_pb2 as op

    answer = await client.ask(client.operator.ListCalls, op.ListCallsRequest())
    return (call.call_id for call in answer.calls)


async def _sessions(client: Operator) -> Iterable[str]:
    from toolcell_proto.v1 import operator_pb2 as op

    answer = await client.ask(client.operator.ListSessions, op.ListSessionsRequest())
    return (session.session_id for session in answer.sessions)


def _asked(context: typer.Context, question: Callable[[Operator], Awaitable[Iterable[str]]]) -> Iterable[str]:
    """Ask the daemon that runs; whatever goes wrong, there is nothing to suggest."""
    here = [context.params, context.parent.params if context.parent else {}]
    socket = next((options["socket"] for options in here if options.get("socket")), None)
    directory = next((options["directory"] for options in here if options.get("directory")), None)

    import asyncio

    async def asked() -> Iterable[str]:
        from toolcell.client._launch.daemon import find
        from toolcell.client._transport.operator import operate

        async with asyncio.timeout(SECONDS_MAX), operate(find(socket, "running")) as client:
            return await question(client)

    with contextlib.suppress(Exception):
        if directory:
            os.chdir(directory)
        return asyncio.run(asked())
    return ()


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete) and _SAFE.fullmatch(word)]
