"""`toolcell mcp update`: another version of an MCP server, shown before it is written into the configuration."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Final

from toolcell.cli._ui.connect import CommandContext, daemon
from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.terminal import LOADING, Terminal
from toolcell.cli.operation.adopt.adopt import asked
from toolcell.client._transport.operator import operate
from toolcell_proto.v1 import operator_pb2 as op

TRIED_SECONDS: Final = 900.0
"""For an installation, which may take ten minutes, and for the start of a server."""


async def update(context: CommandContext, server: str, version: str | None, *, yes: bool) -> Exit:
    """Show what another version of a server changes, by default the newest, ask unless `yes`, and write it down."""
    waiting = Terminal(quiet=context.quiet).waiting(LOADING)
    async with waiting as line, daemon(context) as found, operate(found) as client:
        request = op.TryServerRequest(directory=os.getcwd(), server=server, version=version or "")
        tried = await client.ask(client.operator.TryServer, request, timeout_seconds=TRIED_SECONDS)
        line.end()
        if not context.as_json:
            print_prose("\n".join(_shown(tried, server)))
        has_it = not tried.problem and [*tried.before] == [*tried.command] and not version
        agreed = not (tried.problem or has_it) and (yes or await _agreed(context, server, tried.version))
        if agreed:
            command = {"name": server, "before": [*tried.before], "after": [*tried.command]}
            file = asked({"update": command})["file"]
            await client.ask(client.operator.Reload, op.ReloadRequest())
            accept = op.TrustRequest(directory=os.getcwd(), digest=tried.digest, server=server)
            await client.ask(client.operator.Trust, accept)
            if not context.as_json and not context.quiet:
                print_prose(
                    f"\n{clean(server)} is {clean(tried.version)} from its next start on, in {clean(file)}."
                )
                back = shlex.join(tried.before)
                print_prose(f"Its command was: {clean(back)}")
    if context.as_json:
        print_json(_said(tried, changed=agreed))
    return Exit.FAILED if tried.problem else Exit.OK if agreed or has_it else Exit.REFUSED


async def _agreed(context: CommandContext, server: str, version: str) -> bool:
    """Whether the person at the terminal wants it; without a terminal it says how to have it done."""
    words = shlex.join(["toolcell", "mcp", "update", "--yes", server, version])
    return not context.as_json and await Terminal().agrees(
        "Take it?",
        without=f"Nothing is changed without a question or --yes: {clean(words)}",
        declined="Nothing was changed.",
    )


def _shown(tried: op.TryServerResponse, server: str) -> Iterator[str]:
    yield f"{clean(server)} starts: {clean(shlex.join(tried.before))}"
    if tried.problem and not tried.command:
        yield f"Its newest version is not known: {clean(tried.problem)}"
        return
    if [*tried.before] == [*tried.command]:
        yield f"That is {clean(tried.version)}, the newest version."
        return
    yield f"It would start: {clean(shlex.join(tried.command))}"
    if tried.packages:
        yield f"With the packages: {clean(', '.join(tried.packages))}"
    if tried.problem:
        first, *rest = tried.problem.splitlines()
        yield f"It cannot be used: {clean(first)}"
        yield from (f"  {clean(line)}" for line in rest)
        yield "Nothing was changed."
        return
    by_state: dict[str, list[op.ToolAsks]] = {}
    for tool in tried.tools:
        by_state.setdefault(tool.state, []).append(tool)
    for state, words in (("granted", "As before"), ("new", "New"), ("gone", "Gone")):
        if names := [clean(tool.tool) for tool in by_state.get(state, ())]:
            yield f"{words}: {', '.join(names)}"
    for tool in by_state.get("changed", ()):
        yield f"{clean(tool.tool)} describes itself in another way:"
        yield from (f"    {clean(line)}" for line in tool.difference.splitlines())


def _said(tried: op.TryServerResponse, *, changed: bool) -> dict[str, object]:
    return {
        "changed": changed,
        "before": [*tried.before],
        "command": [*tried.command],
        "packages": [*tried.packages],
        "problem": tried.problem or None,
        "tools": [
            {"tool": tool.tool, "state": tool.state, "difference": tool.difference or None}
            for tool in tried.tools
        ],
    }
