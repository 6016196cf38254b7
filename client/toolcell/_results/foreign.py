"""Results in the shapes that other systems' tools return, read as a ToolResult.

Only for tools in the specification's form: in a `@tool` function a dict is data, whatever its keys. A mapping is
one of these shapes when it has the key that names the shape, no key outside of it, and values that fit; anything
else is data as well. That keeps `{"output": 3, "unit": "m"}` a record and not a result with something left out.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from toolcell._results.content import File, Image, Link, ToolResult
from toolcell._results.json_value import to_json

Shape = Mapping[str, Any]


def understood(value: object) -> ToolResult | None:
    """The result that a mapping spells out, or None where the value is data."""
    if not isinstance(value, Mapping):
        return None
    shape = cast("Shape", value)
    for key, others, read in _SHAPES:
        if key in shape and set(shape) - {key} <= others:
            try:
                return read(shape)
            except (TypeError, ValueError, KeyError, binascii.Error):
                return None
    return None


def _output(shape: Shape) -> ToolResult:
    """`{output, title, metadata, attachments}`, where an attachment is a file with a data URL or a link.

    `{output, metadata}` may have any data as its output, which the model reads as JSON.
    """
    output = shape["output"]
    if not isinstance(output, str) and set(shape) == {"output", "metadata"}:
        metadata = _mapping(shape["metadata"])
        return ToolResult(to_json(output).decode(), details=output, metadata=metadata)
    files = [
        _file(_text(each["url"]), _text(each.get("mime", "")), each.get("filename"))
        for each in _list(shape.get("attachments"))
    ]
    parts: list[str | Image | File | Link] = [_text(shape["output"]), *files]
    return ToolResult(parts, title=_optional(shape.get("title")), metadata=_mapping(shape.get("metadata")))


def _content(shape: Shape) -> ToolResult:
    """`{content, details, isError}`, where content is text or a list of MCP's blocks.

    What stands beside for the host alone becomes metadata, and structured output becomes details.
    """
    content = shape["content"]
    parts = content if isinstance(content, str) else [_part(part) for part in _list(content, required=True)]
    for_host = {key: shape[key] for key in _FOR_HOST if shape.get(key) is not None}
    structured = (shape.get(key) for key in ("details", "output", "structuredContent"))
    return ToolResult(
        parts,
        details=next((value for value in structured if value is not None), None),
        title=_optional(shape.get("title")),
        metadata={**(_mapping(shape.get("metadata")) or {}), **for_host} or None,
        is_error=bool(shape.get("isError") or shape.get("is_error")),
    )


def _for_model(shape: Shape) -> ToolResult:
    """`{textResultForLlm, resultType, …}`, where every type but success is a failure."""
    binaries = _list(shape.get("binaryResultsForLlm"))
    pictures = [_picture(_text(each["data"]), _text(each["mimeType"])) for each in binaries]
    parts: list[str | Image | File | Link] = [_text(shape["textResultForLlm"]), *pictures]
    beside = {
        key: shape[key] for key in ("error", "sessionLog", "toolTelemetry") if shape.get(key) is not None
    }
    failed = shape.get("resultType", "success") != "success"
    return ToolResult(parts, details=beside or None, is_error=failed)


_FOR_HOST = ("useless", "providerMetadata", "_meta")

# Each shape: the key that names it, the keys that may stand beside, and how it is read.
_SHAPES: tuple[tuple[str, frozenset[str], Callable[[Shape], ToolResult]], ...] = (
    ("output", frozenset({"title", "metadata", "attachments"}), _output),
    (
        "content",
        frozenset(
            {"details", "isError", "is_error", "title", "metadata", "output", "structuredContent", *_FOR_HOST}
        ),
        _content,
    ),
    (
        "textResultForLlm",
        frozenset({"resultType", "binaryResultsForLlm", "error", "sessionLog", "toolTelemetry"}),
        _for_model,
    ),
)


def _part(part: Mapping[str, Any]) -> str | Image | File | Link:
    match part["type"]:
        case "text":
            return _text(part["text"])
        case "image":
            return _picture(_text(part["data"]), _text(part.get("mimeType") or part["mime_type"]))
        case "resource_link":
            kind = part.get("mimeType") or part.get("mime_type")
            return Link(_text(part["uri"]), name=_optional(part.get("name")), mime_type=_optional(kind))
        case "audio":
            kind = _text(part.get("mimeType") or part["mime_type"])
            return File(data=base64.b64decode(_text(part["data"]), validate=True), mime_type=kind)
        case "resource":
            return _resource(part["resource"])
        case "file":
            url = _text(part["uri"] if "uri" in part else part["url"])
            kind = _text(part.get("mime") or part.get("mimeType") or "")
            return _file(url, kind, part.get("name") or part.get("filename"))
        case other:
            raise ValueError(other)


def _resource(resource: Mapping[str, Any]) -> str | File:
    """MCP's embedded resource: text for the model, or a file."""
    if "text" in resource:
        return _text(resource["text"])
    kind = _optional(resource.get("mimeType") or resource.get("mime_type"))
    name = _text(resource.get("uri", "")).rstrip("/").rpartition("/")[2]
    data = base64.b64decode(_text(resource["blob"]), validate=True)
    return File(data=data, mime_type=kind, name=name or None)


def _file(url: str, mime_type: str, name: object) -> Image | File | Link:
    header, comma, data = url.partition(",")
    if comma and header.startswith("data:") and header.endswith(";base64"):
        kind = mime_type or header[len("data:") : -len(";base64")].partition(";")[0]
        if kind.startswith("image/"):
            return _picture(data, kind)
        return File(data=base64.b64decode(data, validate=True), mime_type=kind or None, name=_optional(name))
    return Link(url, name=_optional(name), mime_type=mime_type or None)


def _picture(data: str, mime_type: str) -> Image:
    if not mime_type.startswith("image/"):
        raise ValueError(mime_type)
    return Image(data=base64.b64decode(data, validate=True), format=mime_type)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)


def _mapping(value: object) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(value)
    return cast("Mapping[str, Any] | None", value)


def _list(value: object, *, required: bool = False) -> Sequence[Mapping[str, Any]]:
    if value is None and not required:
        return ()
    if not isinstance(value, list | tuple):
        raise TypeError("a list is needed")
    items = cast("Sequence[object]", value)
    if not all(isinstance(item, Mapping) for item in items):
        raise TypeError("a list of mappings is needed")
    return cast("Sequence[Mapping[str, Any]]", items)
