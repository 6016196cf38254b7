"""A minimal tool: the schema comes from the type hints, the description from the docstring."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from toolcell import tool


@tool(read_only=True)
def words(path: str, minimum: int = 1) -> dict[str, int]:
    """Count the words of a file.

    Args:
        path: File to read, relative to the project.
        minimum: Leave out words that occur fewer times.
    """
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    return {word: count for word, count in Counter(text.split()).most_common() if count >= minimum}
