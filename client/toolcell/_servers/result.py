"""What a tool of an MCP server returned, as a result of ours: its content in order, its structured content as details."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

from toolcell._results.content import File, Image, Link, ToolResult
from toolcell._results.errors import ToolError
from toolcell._results.mcp_content import block

KINDS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
TYPE_CHARACTERS_MAX: Final = 64


class Content(SimpleNamespace):
    """A block of content, with its fields as attributes: as the SDK has one."""


def result_of(returned: Mapping[str, Any]) -> ToolResult:
    """Return the result of `tools/call`.

    Args:
        returned: As the server sent it.

    Raises:
        ToolError: A part of it cannot be read.
    """
    content = returned.get("content")
    parts = cast("list[object]", content) if isinstance(content, list) else []
    return ToolResult(
        [part_of(part) for part in parts],
        details=returned.get("structuredContent"),
        is_error=returned.get("isError") is True,
    )


def decoded(data: object) -> bytes:
    """Return what base64 stands for. Raises `ToolError` for anything else."""
    try:
        return base64.b64decode(cast("str", data), validate=True)
    except (ValueError, TypeError) as error:
        raise ToolError(f"The server sent what is no base64: {error}.") from None


def part_of(part: object) -> str | Image | File | Link:
    """Return a block of content as a part of a result. Raises `ToolError` if it cannot be read."""
    fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        return f"(content of the type {str(kind)[:TYPE_CHARACTERS_MAX]!r}, which is not shown)"
    if kind == "text" and isinstance(text := fields.get("text"), str):
        return text
    inner = fields.get("resource")
    if isinstance(inner, dict):
        fields = {**fields, "resource": Content(**cast("dict[str, Any]", inner))}
    return block(Content(**fields))
