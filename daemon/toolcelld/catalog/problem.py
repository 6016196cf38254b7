"""What of a directory cannot be used, and why; a directory of tools is never empty without a word.

Three reasons are notes more than faults, as nothing is broken: a tool that another one hides (`shadowed`), a tool that is
switched off (`disabled`), and what is no tool (`unused`): a script where no engine is there to run it, a file without a tool,
a directory that has only such files. Metadata, `*.md` and `*.json`, is never run and is a note only where there is nothing
else.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from toolcell._paths import SCRIPTS
from toolcelld.environments.engine import INSTALLING

__all__ = ["Problem", "Reason", "is_script", "no_tool", "script_of", "unused_in"]

Reason = Literal["broken", "shadowed", "rejected", "stale", "quarantined", "disabled", "unused"]

DECLARATIONS: Final = (".d.ts", ".d.mts", ".d.cts")
NAMES_SHOWN_MAX: Final = 3
NOT_RUN_MAX: Final = 100
"""Problems about files of other languages in one directory: more of them say nothing new."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or tool of a source that cannot be used, and why."""

    path: str
    tool: str  # empty when the whole file is affected
    reason: Reason
    message: str  # the first line is the cause, the following lines are the remedy
    line: int = 0


def unused_in(
    place: str, entries: Sequence[os.DirEntry[str]], tool_files: Collection[str], engines: str
) -> Iterator[Problem]:
    """Yield what of a directory of tools is not run.

    Args:
        place: The directory.
        entries: Its entries.
        tool_files: The paths in it that are tool files, or have a problem of their own.
        engines: The programs that could run TypeScript here, and are not there; empty if one is.
    """
    shown = [entry for entry in entries if not entry.name.startswith(".") and entry.name != "__pycache__"]
    found = [path for entry in shown if engines and (path := script_of(place, entry))]
    for path in found[:NOT_RUN_MAX]:
        language = "TypeScript" if "ts" in os.path.splitext(path)[1] else "JavaScript"
        cause = f"is {language}, which {engines} runs, and there is none"
        yield Problem(_text(path), "", "unused", f"{cause}\nTo have it run, {INSTALLING}")
    if shown and not found and not tool_files:
        names = ", ".join(entry.name for entry in shown[:NAMES_SHOWN_MAX])
        more = f" and {len(shown) - NAMES_SHOWN_MAX} more" if len(shown) > NAMES_SHOWN_MAX else ""
        message = f"has no tool file, only {names}{more}\nA tool file is NAME.py, NAME/__init__.py, NAME.ts or NAME.js; write one: toolcell init"
        yield Problem(place, "", "unused", _text(message))


def no_tool(path: str) -> Problem:
    """The note about a file that has been run and has no tool."""
    if is_script(path):
        return Problem(
            path,
            "",
            "unused",
            "has no tool\n"
            "Looked for: exported objects with a description and execute(args, context), as tool({…}) returns them.\n"
            "If it is a helper, begin its name with _, or import it from a tool file.",
        )
    return Problem(
        path,
        "",
        "unused",
        "has no tool\n"
        "Looked for: functions with @tool, tool(…, execute=…), objects with a description and execute(args, context), "
        "and tools of FastMCP, LangChain, smolagents, the OpenAI Agents SDK and Pydantic AI.\n"
        "If it is a helper, begin its name with _, or import it from a tool file.",
    )


def is_script(path: str) -> bool:
    """Return whether a file is one that an engine runs, by its name."""
    return os.path.splitext(path)[1] in SCRIPTS


def script_of(place: str, entry: os.DirEntry[str]) -> str:
    """Return the path of the file of an entry that an engine runs as tools; empty if there is none."""
    name = entry.name
    if name.startswith("_") or name.endswith(DECLARATIONS):
        return ""
    if is_script(name):
        return os.path.join(place, name)
    try:
        if not entry.is_dir(follow_symlinks=False):
            return ""
    except OSError:
        return ""
    indices = (os.path.join(place, name, f"index{suffix}") for suffix in SCRIPTS)
    return next((path for path in indices if os.path.lexists(path)), "")


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()
