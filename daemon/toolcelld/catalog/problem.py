"""What of a directory cannot be used, and why; a directory of tools is never empty without a word.

Three reasons are notes more than faults, as nothing is broken: a tool that another one hides (`shadowed`), a tool that is
switched off (`disabled`), and what is no Python tool (`unused`): a file of another language, a Python file without a tool,
a directory that has only such files. Metadata, `*.md` and `*.json`, is never run and is a note only where there is nothing
else.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["Problem", "Reason", "no_tool", "unused_in"]

Reason = Literal["broken", "shadowed", "rejected", "stale", "quarantined", "disabled", "unused"]

LANGUAGES: Final = {
    ".ts": "TypeScript",
    ".mts": "TypeScript",
    ".cts": "TypeScript",
    ".tsx": "TypeScript",
    ".js": "JavaScript",
    ".mjs": "JavaScript",
    ".cjs": "JavaScript",
    ".jsx": "JavaScript",
}
"""Other systems run tools in these languages; Toolcell does not yet."""
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
    place: str, entries: Sequence[os.DirEntry[str]], tool_files: Collection[str]
) -> Iterator[Problem]:
    """Yield what of a directory of tools is not run.

    Args:
        place: The directory.
        entries: Its entries.
        tool_files: The paths in it that are tool files, or have a problem of their own.
    """
    shown = [entry for entry in entries if not entry.name.startswith(".") and entry.name != "__pycache__"]
    found = [path for entry in shown if (path := _in_another_language(place, entry))]
    for path in found[:NOT_RUN_MAX]:
        language = LANGUAGES[os.path.splitext(path)[1]]
        yield Problem(
            _text(path), "", "unused", f"is {language}, which is not run yet; tools are Python files"
        )
    if shown and not found and not tool_files:
        names = ", ".join(entry.name for entry in shown[:NAMES_SHOWN_MAX])
        more = f" and {len(shown) - NAMES_SHOWN_MAX} more" if len(shown) > NAMES_SHOWN_MAX else ""
        message = f"has no tool file, only {names}{more}\nA tool file is NAME.py, or NAME/__init__.py; write one: toolcell init"
        yield Problem(place, "", "unused", _text(message))


def no_tool(path: str) -> Problem:
    """The note about a Python file that has been run and has no tool."""
    return Problem(
        path,
        "",
        "unused",
        "has no tool\n"
        "Looked for: functions with @tool, tool(…, execute=…), objects with a description and execute(args, context), "
        "and tools of FastMCP, LangChain, smolagents, the OpenAI Agents SDK and Pydantic AI.\n"
        "If it is a helper, begin its name with _, or import it from a tool file.",
    )


def _in_another_language(place: str, entry: os.DirEntry[str]) -> str:
    """Return the path of the file that another system would run; empty if there is none."""
    name = entry.name
    if name.startswith("_") or name.endswith(DECLARATIONS):
        return ""
    if os.path.splitext(name)[1] in LANGUAGES:
        return os.path.join(place, name)
    try:
        if not entry.is_dir(follow_symlinks=False):
            return ""
    except OSError:
        return ""
    indices = (os.path.join(place, name, f"index{suffix}") for suffix in LANGUAGES)
    return next((path for path in indices if os.path.lexists(path)), "")


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()
