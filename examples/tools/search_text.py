"""Searches all files of a directory for a regular expression; its output can be larger than a model should read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from toolcell import ToolContext, ToolError, tool

FILE_BYTES_MAX = 4 * 2**20  # larger files are assumed to be data, not text
FILES_PER_PROGRESS = 50  # frequent enough for a progress bar, rare enough to be cheap


def text_files(top: Path) -> Iterator[Path]:
    """Yield the files below `top` in a stable order, without hidden files and directories."""
    for directory, directories, names in os.walk(top):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        yield from (Path(directory, name) for name in sorted(names) if not name.startswith("."))


@tool(read_only=True, timeout=120)
def search_text(
    pattern: Annotated[str, "Python regular expression, matched against each line"],
    directory: Annotated[str, "Directory to search, relative to the project"] = ".",
    *,
    context: ToolContext,
) -> str:
    """Search the text files of a directory; one hit per line, as path:line: text."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ToolError(f"pattern: {error}; it is a Python regular expression") from error
    hits: list[str] = []
    for n, file in enumerate(text_files(context.directory / directory)):
        if n % FILES_PER_PROGRESS == 0:
            context.progress(n, message=f"{len(hits)} hits")
        try:
            content = file.read_bytes() if file.stat().st_size <= FILE_BYTES_MAX else b""
        except OSError:  # deleted meanwhile, or not readable
            continue
        if b"\0" in content:  # a binary file
            continue
        path = file.relative_to(context.directory)
        lines = content.decode("utf-8", errors="replace").splitlines()
        hits += (
            f"{path}:{number}: {line}" for number, line in enumerate(lines, 1) if expression.search(line)
        )
    return "\n".join(hits) or "No hits."
