"""A docstring taken apart: what the tool does, and what its arguments are.

Only the `Args:` section is understood, in the common indented form. The rest, with sections such as `Returns:`, is
the description: a model reads it as well as a person does.
"""

from __future__ import annotations

import re
import textwrap

__all__ = ["parse"]

_HEADING = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def parse(docstring: str) -> tuple[str, dict[str, str]]:
    """The description without its `Args:` section, and the sentence about each argument."""
    lines = _dedented(docstring)
    start = next((number for number, line in enumerate(lines) if _HEADING.match(line)), None)
    if start is None:
        return "\n".join(lines).strip(), {}
    end = next(
        (
            number
            for number in range(start + 1, len(lines))
            if lines[number] and not lines[number].startswith(" ")
        ),
        len(lines),
    )
    before, after = "\n".join(lines[:start]).strip(), "\n".join(lines[end:]).strip()
    return "\n\n".join(part for part in (before, after) if part), _entries(lines[start + 1 : end])


def _dedented(docstring: str) -> list[str]:
    first, _, rest = docstring.expandtabs().partition("\n")
    return [first.strip(), *(line.rstrip() for line in textwrap.dedent(rest).splitlines())]


def _entries(lines: list[str]) -> dict[str, str]:
    """`name: text` or `name (type): text`; a deeper indented line goes on with the one before."""
    found: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        entry = None if line.startswith(" ") else _ENTRY.match(line)
        if entry is not None:
            name = entry[1]
            found[name] = entry[2].strip()
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
