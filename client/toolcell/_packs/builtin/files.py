"""The built-in tool `file-reader`."""

from __future__ import annotations

import os
from typing import Annotated

from toolcell import Field, ToolContext, ToolError, tool
from toolcell._plugins.read_below import read_below

FILE_BYTES_MAX = 2**20


@tool(name="file-reader", read_only=True, idempotent=True, programs=False, timeout=30)
def file_reader(
    context: ToolContext,
    path: Annotated[str, Field(min_length=1, description="The file; relative to the session's directory")],
    startLine: Annotated[int | None, Field(ge=1, description="The first line, from 1")] = None,  # noqa: N803
    endLine: Annotated[int | None, Field(ge=1, description="The last line; it is included")] = None,  # noqa: N803
) -> str:
    """Read a text file of the project, of 1 MiB at most: all of it, or a range of lines."""
    text = read_below(str(context.worktree), os.path.join(context.directory, path), FILE_BYTES_MAX)
    if startLine is None and endLine is None:
        return text
    lines = text.splitlines(keepends=True)
    first, last = startLine or 1, len(lines) if endLine is None else endLine
    if first > len(lines):
        raise ToolError(f"startLine {first} is beyond the end: {path} has {len(lines)} lines.")
    if last < first:
        raise ToolError(f"endLine {last} is before startLine {first}; the file has {len(lines)} lines.")
    return "".join(lines[first - 1 : last])
