"""What of a directory cannot be used, and why; a directory of tools is never empty without a word.

Four reasons are notes more than faults, as nothing is broken: what of a file has no effect or may surprise (`remark`), a
tool that another one hides (`shadowed`), a tool that is switched off (`disabled`), and what is no tool (`unused`): a script where no engine is there to run it, a file without a tool,
a directory that has only such files. Metadata, `*.md` and `*.json`, is never run and is a note only where there is nothing
else.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from toolcell._file_kinds import KINDS, PYTHON, kind_of, listed
from toolcelld.catalog.discovery.candidates import candidate_of
from toolcelld.environments.engine import INSTALLING

Reason = Literal["broken", "shadowed", "rejected", "stale", "quarantined", "disabled", "unused", "remark"]

NAMES_SHOWN_MAX: Final = 3
NOT_RUN_MAX: Final = 100
"""Problems about files of other languages in one directory: more of them say nothing new."""
SHOWN: Final = listed(
    [
        *PYTHON.files_of("NAME"),
        *(f"NAME{kind.suffix}" for kind in KINDS if kind is not PYTHON and kind.place == "tools"),
    ]
)
"""The names of tool files, for who has none."""


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
        tool_files: The paths in it that are tool files, or have a problem of their own.
        engines: The programs that could run TypeScript here, and are not there; empty if one is.
    """
    shown = [entry for entry in entries if not entry.name.startswith(".") and entry.name != "__pycache__"]
    kinds = [kind for kind in KINDS if kind.needs_engine and engines]
    found = [candidate for entry in shown if (candidate := candidate_of(place, entry, kinds))]
    for candidate in found[:NOT_RUN_MAX]:
        cause = f"is {candidate.kind.language}, which {engines} runs, and there is none"
        yield Problem(_text(candidate.path), "", "unused", f"{cause}\nTo have it run, {INSTALLING}")
    if shown and not found and not tool_files:
        names = ", ".join(entry.name for entry in shown[:NAMES_SHOWN_MAX])
        more = f" and {len(shown) - NAMES_SHOWN_MAX} more" if len(shown) > NAMES_SHOWN_MAX else ""
        message = f"has no tool file, only {names}{more}\n"
        if any(entry.name.startswith("_") for entry in shown):
            message += "A name that begins with _ is that of a helper. "
        if any(entry.name.endswith(kind.excluded) for entry in shown for kind in KINDS):
            message += "Type declarations have no tools. "
        message += f"A tool file is {SHOWN}; write one: toolcell init"
        yield Problem(place, "", "unused", _text(message))


def no_tool(path: str, absence: str) -> Problem:
    """The note about a file that has been run and has no tool; `absence` says why, where that is known."""
    if absence:
        return Problem(path, "", "unused", f"has no tool: {absence}")
    kind = kind_of(path) or PYTHON
    helper = "If it is a helper, begin its name with _, or import it from a tool file."
    return Problem(path, "", "unused", f"has no tool\nLooked for: {kind.looked_for}.\n{helper}")


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()
