"""What a tool of an MCP server says of itself: the promise that a person accepts, its digest, and how two of them differ."""

from __future__ import annotations

import difflib
import hashlib
import json
from typing import TYPE_CHECKING, Final

from toolcell._printable import printable

if TYPE_CHECKING:
    from toolcelld.catalog.catalog import ToolInfo

TEXT_CHARACTERS_MAX: Final = 16 * 1024
"""Of what is kept for the difference; the digest is that of all."""
LINES_MAX: Final = 400
"""Of what is compared: a line of a text of 16 KiB has 40 letters then, and comparing takes milliseconds."""
SHOWN_LINES_MAX: Final = 80
SHOWN_CHARACTERS_MAX: Final = 240
"""Of a line of a difference."""


def promise_of(tool: ToolInfo) -> str:
    """Return in lines what a tool says of itself to models, to people and to hosts."""
    hints = {"read only": tool.read_only, "destructive": tool.destructive, "idempotent": tool.idempotent}
    said = ", ".join(f"{name}: {'not said' if value is None else value}" for name, value in hints.items())
    parts = [tool.description, f"title: {tool.title}", said, "arguments:", _lines_of(tool.input_schema)]
    if tool.output_schema:
        parts += ["value:", _lines_of(tool.output_schema)]
    return "\n".join(parts)


def digest_of(tool: ToolInfo) -> str:
    """Return the digest of what a tool says of itself."""
    return hashlib.blake2b(promise_of(tool).encode(errors="replace"), digest_size=16).hexdigest()


def _lines_of(schema: bytes) -> str:
    try:
        return json.dumps(json.loads(schema), indent=1, sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return schema.decode(errors="replace")


def difference(before: str, after: str) -> str:
    """Return what differs between two promises: a unified difference without what controls a terminal, bounded.

    Args:
        before: What was accepted; empty where that is not known.
        after: What is said now.
    """
    old, new = (text[:TEXT_CHARACTERS_MAX].splitlines()[:LINES_MAX] for text in (before, after))
    lines = list(difflib.unified_diff(old, new, "as it was accepted", "as it is now", lineterm="", n=1))
    shown = [printable(line[:SHOWN_CHARACTERS_MAX], lines=False) for line in lines[:SHOWN_LINES_MAX]]
    if len(lines) > SHOWN_LINES_MAX:
        shown.append(f"… and {len(lines) - SHOWN_LINES_MAX} more lines")
    return "\n".join(shown) or "(what differs is beyond what is shown)"
