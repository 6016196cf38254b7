"""MCP's own types as results: `CallToolResult`, blocks of content, resources, and lists with one.

A class is known by its name and by the package it is from, so that nothing is imported for it: the SDK's own classes, which
a tool may return whatever it is declared with, and the stand-ins for them.
"""

from __future__ import annotations

import base64
import contextlib
import sys
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from toolcell._results.content import File, Image, Link, ToolResult
from toolcell._results.errors import ToolError

PACKAGES: Final = frozenset({"mcp", "mcp_types"})
BLOCKS: Final = frozenset({"TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource"})
RESULTS: Final = frozenset({"CallToolResult"})
DEPTH_MAX: Final = 3
"""Of lists in lists; beyond it a value is data."""
_LISTS: Final = frozenset[Any]({list, tuple, Sequence, Iterable})
_UNIONS: Final = frozenset[Any]({typing.Union, types.UnionType})


def _is_of(kind: type[Any], names: frozenset[str]) -> bool:
    return any(
        each.__name__ in names and str(each.__module__).partition(".")[0] in PACKAGES for each in kind.__mro__
    )


def is_block(value: object) -> bool:
    return not PACKAGES.isdisjoint(sys.modules) and _is_of(type(value), BLOCKS)


def is_blocks(value: Any, depth: int = 0) -> bool:
    """Whether a value is a block, or a list with one, also in lists in it, which the SDK takes apart."""
    if PACKAGES.isdisjoint(sys.modules) or depth > DEPTH_MAX:  # then there is no block to look for
        return False
    if isinstance(value, list | tuple):
        return any(is_blocks(item, depth + 1) for item in cast("Sequence[Any]", value))
    return is_block(value)


def tool_result(value: Any) -> ToolResult | None:
    """Return a `CallToolResult` as a result of ours; None for anything else."""
    if PACKAGES.isdisjoint(sys.modules) or not _is_of(value.__class__, RESULTS):
        return None
    return ToolResult(
        list(value.content or ()),
        details=_named(value, "structured_content", "structuredContent"),
        metadata=_named(value, "meta", "_meta"),
        is_error=bool(_named(value, "is_error", "isError")),
    )


def block(value: Any) -> str | Image | File | Link:
    """Return a block of content as a part of a result. Raises `ToolError` if it cannot be read."""
    try:
        return _part(value)
    except (ValueError, TypeError, AttributeError) as error:
        raise ToolError(f"The tool returned {type(value).__name__} that cannot be read: {error}.") from error


def _part(value: Any) -> str | Image | File | Link:
    match value.type:
        case "text":
            return str(value.text)
        case "image":
            return Image(data=base64.b64decode(value.data, validate=True), format=_mime_type(value))
        case "resource_link":
            return Link(str(value.uri), name=getattr(value, "name", None), mime_type=_mime_type(value))
        case "resource" if hasattr(value.resource, "text"):
            return str(value.resource.text)
        case "resource":
            name = str(getattr(value.resource, "uri", "")).rstrip("/").rpartition("/")[2]
            data = base64.b64decode(value.resource.blob, validate=True)
            return text_or_file(data, name, _mime_type(value.resource))
        case _:
            return text_or_file(
                base64.b64decode(value.data, validate=True), "sound", _mime_type(value) or "audio/wav"
            )


def text_or_file(data: bytes, name: str, mime_type: str | None) -> str | File:
    """Return a file; its text if it has some, unless it says that it is something else."""
    if mime_type is None or mime_type.startswith("text/"):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode()
    return File(data=data, name=name or None, mime_type=mime_type)


def _mime_type(value: Any) -> str | None:
    return cast("str | None", _named(value, "mime_type", "mimeType"))


def _named(value: Any, *names: str) -> Any:
    """An attribute, which the releases of the SDK spell differently."""
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)


def data_hint(hint: Any) -> Any:
    """Return the part of a return annotation that is about data; None where the value is content, by itself or in a list.

    `Annotated[CallToolResult, Model]` says what the structured content is, as the SDK has it.
    """
    if typing.get_origin(hint) is typing.Annotated:
        base, *beside = typing.get_args(hint)
        if isinstance(base, type) and _is_of(base, RESULTS):
            return next((each for each in beside if isinstance(each, type)), None)
    return None if _mentions(hint) else hint


def _mentions(hint: Any) -> bool:
    hint = getattr(hint, "__value__", hint)  # of an alias: `type Blocks = …`
    if isinstance(hint, type) and not typing.get_args(hint):
        return _is_of(hint, BLOCKS | RESULTS)
    inner = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _mentions(inner[0])
    return (origin in _UNIONS or origin in _LISTS) and any(map(_mentions, inner))
