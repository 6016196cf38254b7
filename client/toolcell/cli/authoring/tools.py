"""`toolcell tools` and `toolcell check`: what a directory sees, one tool of it, and what is wrong.

Both work without a running daemon, by a private one. `check` looks at what was broken once more, as its cause may
lie outside the file, and exits with 1 where something cannot be used. That a tool is hidden by another or switched off is
no fault, nor that a file is not run, unless that file is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext, daemon, tool_file
from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli._ui.format import clean, shown_path
from toolcell.cli._ui.json_output import problem, record, tool
from toolcell.cli._ui.prose import filled, print_prose, prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.tables import print_facts, print_table
from toolcell.cli._ui.terminal import LOADING, Terminal, Waiting
from toolcell.client import Catalog, Problem, connect
from toolcell.client._transport.messages import read_catalog
from toolcell.client._transport.operator import Operator, operate
from toolcell.client.catalog import NOTES
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

DESCRIPTION_BYTES_SHOWN = 2048
"""Of a tool's description, by Claude Code 2; the other agents show all of it."""


async def tools(context: CommandContext, name: str | None) -> Exit:
    """What the directory sees, or one tool with what applies to it."""
    waiting = Terminal(quiet=context.quiet).waiting(LOADING)
    async with waiting as line, daemon(context) as found, operate(found) as client:
        if name is not None:
            await _one_tool(context, client, name, line)
            return Exit.OK
        answer = await client.ask(client.tools.ListTools, pb.ListToolsRequest(directory=os.getcwd()))
    if not context.as_json:
        print_prose(answer.text)
        return Exit.OK
    catalog = read_catalog([answer.catalog])
    print_json(
        {
            "generation": catalog.generation,
            "directory": os.getcwd(),
            "counts": catalog.counts,
            "tools": [tool(found) for found in catalog.tools.values()],
            "problems": [problem(found) for found in catalog.problems],
        }
    )
    return Exit.OK


async def _one_tool(context: CommandContext, client: Operator, name: str, waiting: Waiting) -> None:
    answer = await client.ask(client.tools.GetTool, pb.GetToolRequest(directory=os.getcwd(), name=name))
    trust = op.GetTrustRequest(directory=os.getcwd())
    asked = None if context.as_json else await client.ask(client.operator.GetTrust, trust)
    waiting.end()
    (found,) = read_catalog([pb.CatalogPart(tools=[answer.tool], last=True)]).tools.values()
    if asked is None:
        print_json({"tool": tool(found), "settings": [record(setting) for setting in answer.settings]})
        return
    hints = [hint for hint in ("read_only", "destructive", "idempotent", "network") if getattr(found, hint)]
    print_prose(f"{found.name} ({found.scope})" + (f": {clean(found.title)}" if found.title else ""))
    description = "\n".join(map(_indented, found.description.splitlines()))
    print(filled(description, "  ", sys.stdout))
    print_prose(f"\nFile: {shown_path(found.path)}")
    if hints:
        print(f"Hints: {', '.join(hints)}")
    print(f"\nArguments, as the model sees them:\n{json_text(found.input_schema, indent=2)}")
    print()
    print_table(
        ("SETTING", "VALUE", "FROM"),
        [(setting.key, setting.value, setting.origin) for setting in answer.settings],
        wrap=("VALUE", "FROM"),
    )
    for line in _waiting(asked, [found.path], found.name):
        print_prose(line)


async def check(context: CommandContext, files: Sequence[str]) -> Exit:
    """Load, report, and exit with 1 where something cannot be used."""
    only = tuple(dict.fromkeys(tool_file(file) for file in files))
    async with (
        Terminal(quiet=context.quiet).waiting(LOADING),
        daemon(context, only=only) as found,
        connect(found.socket, agent="cli", directory=".", daemon="running", linger=0) as session,
        operate(found) as client,
    ):
        await session.reload()
        answer = await client.ask(client.tools.ListTools, pb.ListToolsRequest(directory=os.getcwd()))
        asked = await client.ask(client.operator.GetTrust, op.GetTrustRequest(directory=os.getcwd()))
    catalog = read_catalog([answer.catalog])
    reports = _reports(catalog, only)
    harmless = NOTES - {"unused"} if files else NOTES  # a file that is named should have a tool
    broken = any(wrong.reason not in harmless for _, _, problems in reports for wrong in problems)
    if context.as_json:
        records = [
            {"path": path, "tools": names, "problems": [problem(wrong) for wrong in problems]}
            for path, names, problems in reports
        ]
        print_json({"directory": os.getcwd(), "ok": not broken, "files": records})
    else:
        _print_reports(reports)
        for remark in () if context.quiet else (*_remarks(catalog), *_waiting(asked, only)):
            print(prose(remark, sys.stderr), file=sys.stderr)
    return Exit.FAILED if broken else Exit.OK


def _reports(catalog: Catalog, wanted: Sequence[str]) -> list[tuple[str, list[str], list[Problem]]]:
    """Each file with its tools and its problems."""
    reports: dict[str, tuple[list[str], list[Problem]]] = {}
    for found in catalog.tools.values():
        reports.setdefault(found.path, ([], []))[0].append(found.name)
    for wrong in catalog.problems:
        reports.setdefault(wrong.path, ([], []))[1].append(wrong)
    for path in wanted:
        if path not in reports:
            message = "it has no tools\nA tool is a function that carries @tool: from toolcell import tool"
            reports[path] = [], [Problem(path, "", "broken", message)]
    return [
        (path, *reports[path]) for path in sorted(reports, key=lambda path: (os.path.dirname(path), path))
    ]


def _remarks(catalog: Catalog) -> Iterator[str]:
    """Yield what is right and will not reach every model."""
    for found in catalog.tools.values():
        size = len(found.description.encode())
        if size > DESCRIPTION_BYTES_SHOWN:
            shown = f"Claude Code shows a model the first {DESCRIPTION_BYTES_SHOWN}"
            yield f"{found.name}: its description has {size} bytes, and {shown}."


def _waiting(asked: op.GetTrustResponse, only: Sequence[str] = (), name: str = "") -> Iterator[str]:
    """Yield what waits until the project is trusted with it, and the command, in the words of a refused call.

    Args:
        asked: What the project asks for.
        only: The files that it is wanted of; empty, the default, for all.
        name: The tool that it is wanted of; empty, the default, for all.
    """
    held: dict[str, list[str]] = {}
    commands: dict[str, None] = {}
    for it in asked.tools:
        if it.held and (not only or it.path in only) and name in ("", it.tool):
            what = ", ".join(it.held)
            held.setdefault(it.why, []).append(what if name else f"{it.tool}: {what}")
            commands[it.command] = None
    for why, waiting in held.items():
        yield f"{clean(why)}. Held until it is trusted: {clean('; '.join(waiting))}."
    for command in commands:
        yield f"  To see what is asked for, and to grant it: {clean(command)}"


def _print_reports(reports: Sequence[tuple[str, list[str], list[Problem]]]) -> None:
    if not reports:
        print("No tool files. Write one: toolcell init", file=sys.stderr)
    width = max((len(shown_path(path)) for path, _, _ in reports), default=0)
    for path, names, problems in reports:
        place = shown_path(path).ljust(width)
        if names:
            print_facts([(place, ", ".join(names))])
        for wrong in problems:
            first, *rest = _complaint(wrong)
            print_facts([(place, first)])
            print("\n".join(rest), end="\n" if rest else "")  # to be copied


def _complaint(wrong: Problem) -> Iterator[str]:
    first, *rest = wrong.message.split("\n")
    subject = f"{wrong.tool}, " if wrong.tool and wrong.tool not in first else ""
    line = f", line {wrong.line}" if wrong.line else ""
    yield f"{wrong.reason}{line}: {subject}{clean(first)}"
    yield from (f"  {_indented(line)}" for line in rest)


def _indented(line: str) -> str:
    """A line that may hold spacing of its own."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
