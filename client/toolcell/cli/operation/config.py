"""`toolcell config show`, `check` and `set`: what the configuration says, whether it can be used, and a change of it.

A process of the daemon's package reads the files, as a daemon would at its start; none has to run. `check` also asks
for the tools of the directory, to name rules that are about none of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext, daemon, operator
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.prose import GAP, columns_of, print_prose, wrapped
from toolcell.cli._ui.tables import BELOW
from toolcell.client import Unavailable

SECONDS_MAX = 60
PATTERN = "*?["
VALUE_COLUMNS_MAX = 60
"""Of the values beside which the origins stand in one column; behind a longer one it stands where it ends."""


def show(context: CommandContext) -> Exit:
    """Print every value with its origin, as TOML."""
    found = _report(())
    refuse_mistakes(found)
    if context.as_json:
        print(json_text({"files": found["files"], "values": found["values"]}))
        return Exit.OK
    table: list[str] = []
    lines = [
        (above, f"{key} = {clean(value['value'])}", f"# {_place(value)}{_held(value)}")
        for value in found["values"]
        for *above, key in [_split(value["key"])]
    ]
    widest = max(len(said) for _, said, _ in lines if len(said) <= VALUE_COLUMNS_MAX)
    for above, said, origin in lines:
        if above != table:
            print(f"[{'.'.join(above)}]")
            table = above
        _print_value(said, origin, widest)
    return Exit.OK


def _print_value(said: str, origin: str, widest: int) -> None:
    """Print a line of TOML with its origin; on a terminal that is too narrow in several, which are TOML too."""
    columns = columns_of(sys.stdout)
    if not sys.stdout.isatty() or max(len(said), widest) + GAP + len(origin) <= columns:
        print(f"{said:<{widest}}{' ' * GAP}{origin}")
        return
    if len(said) + GAP + len(origin) <= columns:
        print(said + " " * (columns - len(said) - len(origin)) + origin)
        return
    for line in wrapped(origin.removeprefix("# "), columns - len("# ")):
        print(f"# {line}")
    first, *rest = wrapped(said, columns - len(BELOW))
    print("\n".join([first, *(BELOW + line for line in rest)]))


async def set_key(context: CommandContext, key: str, value: str) -> Exit:
    """Set a dotted key of the user's configuration, and have a running daemon read it. A value that is no TOML is text."""
    done = run("toolcelld.config.edit", key, value)
    refuse_mistakes(done)
    read = await reread(context, done["file"])
    when = "The daemon has read it." if read else "A daemon reads it when it starts."
    shown = {"file": done["file"], "line": done["line"], "reloaded": read}
    return context.show(shown, f"{clean(done['file'])}: {clean(done['line'])}\n{when}")


async def reread(context: CommandContext, file: str) -> bool:
    """Have a running daemon read its configuration; return whether one has read that file."""
    from toolcell_proto.v1 import operator_pb2 as op

    with contextlib.suppress(Unavailable):
        async with operator(context) as client:
            await client.ask(client.operator.Reload, op.ReloadRequest())
            status = await client.ask(client.operator.GetStatus, op.GetStatusRequest())
            return file in status.config_files
    return False


async def check(context: CommandContext, files: Sequence[str]) -> Exit:
    """Say what is wrong and what is odd; exits with 1 where a daemon would not start."""
    found = _report(files)
    notes = [f"{_place(note)}: {note['key']}: {note['text']}" for note in found["notes"]]
    if not found["mistakes"]:
        notes += await _rules_about_nothing(context, found["values"])
    if context.as_json:
        print(json_text({"files": found["files"], "mistakes": found["mistakes"], "notes": notes}))
    else:
        for line in (*found["mistakes"], *notes):
            print_prose(clean(line))
        if not found["mistakes"]:
            read = [file["path"] for file in found["files"] if file["read"]]
            print_prose(
                f"The configuration can be used: {', '.join(map(clean, read)) or 'no file, only defaults'}."
            )
    return Exit.FAILED if found["mistakes"] else Exit.OK


def _report(files: Sequence[str]) -> dict[str, Any]:
    return run("toolcelld.config.report", *map(os.path.abspath, files))


def run(
    module: str, *words: str, said: str = "", failed: str = "The configuration cannot be read."
) -> dict[str, Any]:
    """Run a module of the daemon's package, and return what it prints.

    It reads `said` on stdin; `failed` is what to say where it fails by itself.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, *words],
        input=said,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise Failure(Exit.INTERNAL, "internal", failed, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refuse_mistakes(found: dict[str, Any]) -> None:
    """Raise `Failure` for a configuration that cannot be used."""
    if found["mistakes"]:
        first, *rest = map(clean, found["mistakes"])
        raise Failure(Exit.FAILED, "config", first, "\n".join(rest))


async def _rules_about_nothing(context: CommandContext, values: Iterable[dict[str, Any]]) -> list[str]:
    """Name the rules whose tool the directory does not have; a pattern may be meant for tools to come."""
    from toolcell.client._transport.operator import operate
    from toolcell_proto.v1 import toolcell_pb2 as pb

    places: dict[str, str] = {}
    for value in values:
        words = _split(value["key"])
        if words[0] == "tool" and not set(PATTERN) & set(words[1]):
            places.setdefault(words[1], _place(value))
    if not places:
        return []
    async with daemon(context) as found, operate(found) as client:
        answer = await client.ask(client.tools.ListTools, pb.ListToolsRequest(directory=os.getcwd()))
    known = {tool.name for tool in answer.catalog.tools} | {
        problem.tool for problem in answer.catalog.problems
    }
    return [
        f"{place}: tool.{name}: this directory has no tool of that name"
        for name, place in places.items()
        if name not in known
    ]


def _place(entry: dict[str, Any]) -> str:
    return f"{entry['origin']}:{entry['line']}" if entry["line"] else str(entry["origin"])


def _held(value: dict[str, Any]) -> str:
    return f"; no more than {value['held']}" if value["held"] else ""


def _split(key: str) -> list[str]:
    """Return the parts of a dotted key; only the names of tools and the like are quoted."""
    parts, quoted = [""], False
    for letter in key:
        if letter == '"':
            quoted = not quoted
        elif letter == "." and not quoted:
            parts.append("")
            continue
        parts[-1] += letter
    return parts
