"""A docstring taken apart: what the tool does, and what its arguments are.

The arguments are read in the three common forms: Google's `Args:` section, NumPy's `Parameters` with its underline, and
Sphinx's `:param name:` fields. The rest, with sections such as `Returns:`, is the description: a model reads it as well as
a person does. Why not a library: a worker parses docstrings each time it loads a file, and its interpreter may have
pydantic alone.
"""

from __future__ import annotations

import re
import textwrap

_HEADING = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_UNDERLINED = re.compile(r"^(?:Other )?Parameters\s*$")
_UNDERLINE = re.compile(r"^-{3,}\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_NAMES = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD = re.compile(r"^:(\w+)(?:\s+([^:]*))?:\s*(.*)$")
_PARAM_FIELDS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_TYPE_FIELDS = frozenset({"type", "kwtype"})


def parse(docstring: str) -> tuple[str, dict[str, str]]:
    """The description without what it says of the arguments, and the sentence about each argument."""
    lines = _dedented(docstring)
    found: dict[str, str] = {}
    for take in (_take_google, _take_numpy, _take_sphinx):
        lines, entries = take(lines)
        found |= entries
    return "\n".join(lines).strip(), found


def _dedented(docstring: str) -> list[str]:
    first, _, rest = docstring.expandtabs().partition("\n")
    return [first.strip(), *(line.rstrip() for line in textwrap.dedent(rest).splitlines())]


def _take_google(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    start = next((number for number, line in enumerate(lines) if _HEADING.match(line)), None)
    if start is None:
        return lines, {}
    end = next(
        (
            number
            for number in range(start + 1, len(lines))
            if lines[number] and not lines[number].startswith(" ")
        ),
        len(lines),
    )
    return _without(lines, start, end), _google_entries(lines[start + 1 : end])


def _google_entries(lines: list[str]) -> dict[str, str]:
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


def _take_numpy(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    """`name : type` or `a, b : type`, and the text below, indented; each section ends where the next begins."""
    found: dict[str, str] = {}
    while (start := _underlined(lines, 0, _UNDERLINED)) is not None:
        end = _underlined(lines, start + 2, None)
        end = len(lines) if end is None else end
        found |= _numpy_entries(lines[start + 2 : end])
        lines = _without(lines, start, end)
    return lines, found


def _underlined(lines: list[str], first: int, heading: re.Pattern[str] | None) -> int | None:
    """The number of the first line that is a heading, of this kind or any, with its underline below."""
    for number in range(first, len(lines) - 1):
        line = lines[number]
        fits = bool(line.strip()) and not line.startswith(" ") if heading is None else heading.match(line)
        if fits and _UNDERLINE.match(lines[number + 1]):
            return number
    return None


def _numpy_entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        entry = None if line.startswith(" ") else _NAMES.match(line)
        if entry is not None:
            names = [name.strip().lstrip("*") for name in entry[1].split(",")]
        elif line.strip():
            for name in names:
                found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found


def _take_sphinx(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    """`:param name: text` or `:param type name: text`; an indented line goes on with the field before."""
    found: dict[str, str] = {}
    rest: list[str] = []
    within = False  # a field about an argument
    name = ""
    for line in lines:
        field = _FIELD.match(line)
        if field is not None:
            words = (field[2] or "").split()
            within = bool(words) and field[1] in _PARAM_FIELDS | _TYPE_FIELDS
            name = words[-1].lstrip("*") if within and field[1] in _PARAM_FIELDS else ""
            if name:
                found[name] = field[3].strip()
        elif not line.startswith(" ") or not line.strip():
            within = False
        elif name and within:
            found[name] = f"{found[name]} {line.strip()}".strip()
        if not within:
            rest.append(line)
    return rest, found


def _without(lines: list[str], start: int, end: int) -> list[str]:
    """The lines without a section, with an empty line in its place."""
    before, after = lines[:start], lines[end:]
    while before and not before[-1].strip():
        before.pop()
    while after and not after[0].strip():
        after.pop(0)
    return [*before, "", *after] if before and after else [*before, *after]
