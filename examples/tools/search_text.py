"""A regular expression over all files of a directory: as much output as there are hits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from toolcell import ToolContext, ToolError, tool

FILE_BYTES_MAX = 4 * 2**20  # larger ones are data, not text that somebody reads
FILES_PER_PROGRESS = 50  # often enough for a bar, seldom enough to cost nothing


def text_files(top: Path) -> Iterator[Path]:
    """The files below `top` in a stable order, without what begins with a dot."""
    for directory, directories, names in os.walk(top):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        yield from (Path(directory, name) for name in sorted(names) if not name.startswith("."))


@tool(read_only=True, timeout=120)
def search_text(
    pattern: Annotated[str, "Python regular expression, looked for in each line"],
    directory: Annotated[str, "Where to look, relative to the project"] = ".",
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
        except OSError:  # gone, or not for us: there is nothing to search
            continue
        if b"\0" in content:  # a binary file
            continue
        path = file.relative_to(context.directory)
        lines = content.decode("utf-8", errors="replace").splitlines()
        hits += (
            f"{path}:{number}: {line}" for number, line in enumerate(lines, 1) if expression.search(line)
        )
    return "\n".join(hits) or "No hits."
