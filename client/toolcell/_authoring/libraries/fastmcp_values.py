"""Stand-ins for the values that FastMCP's and MCP's tools return, and their reading as results of ours."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolcell._results.content import Image as OwnImage
from toolcell._results.content import Link
from toolcell._results.content import ToolResult as OwnResult
from toolcell._results.errors import ToolError

__all__ = ["BLOCKS", "Audio", "File", "Image", "Inert", "ToolAnnotations", "ToolResult", "as_result"]


class _Media:
    """Bytes of a file or of memory, with their format."""

    kind = "application"
    default = "octet-stream"

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        data: bytes | None = None,
        format: str | None = None,  # noqa: A002  the library's name
        name: str | None = None,
        annotations: Any = None,  # for the host's screen
    ) -> None:
        if (path is None) == (data is None):
            raise ValueError("Either path or data must be provided, and not both")
        self.path = path
        self.data = data
        self.name = name
        suffix = str(os.fspath(path)).rpartition(".")[2] if path is not None else ""
        self.format = format or suffix.lower()

    def read(self) -> bytes:
        """Return the bytes."""
        if self.data is not None:
            return self.data
        assert self.path is not None
        with open(os.path.expanduser(self.path), "rb") as file:
            return file.read()


class Image(_Media):
    """A picture."""


class Audio(_Media):
    """A sound."""


class File(_Media):
    """A file."""


class ToolResult:
    """A result with content and data, each optional."""

    def __init__(
        self,
        content: Any = None,
        structured_content: Any = None,
        meta: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        self.content = content
        self.structured_content = structured_content
        self.meta = meta


class Inert:
    """Stands for what concerns serving alone, as a provider of tokens: it can be made and passed on, and does nothing."""

    def __init__(self, *args: Any, **named: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert()

    def __call__(self, *args: Any, **named: Any) -> Any:
        # As a decorator it returns what it decorates.
        return args[0] if len(args) == 1 and not named and callable(args[0]) else Inert()


class _Block:
    """A part of MCP's content: its attributes are what it was made of."""

    type = ""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class ToolAnnotations(_Block):
    """What a tool says of itself."""


def _block(name: str, kind: str) -> type[_Block]:
    return cast("type[_Block]", type(name, (_Block,), {"type": kind, "__doc__": f"MCP's {name}."}))


BLOCKS: Mapping[str, type[Any]] = {
    "TextContent": _block("TextContent", "text"),
    "ImageContent": _block("ImageContent", "image"),
    "AudioContent": _block("AudioContent", "audio"),
    "ResourceLink": _block("ResourceLink", "resource_link"),
    "EmbeddedResource": _block("EmbeddedResource", "resource"),
    "TextResourceContents": _block("TextResourceContents", ""),
    "BlobResourceContents": _block("BlobResourceContents", ""),
    "CallToolResult": _block("CallToolResult", ""),
    "Icon": _block("Icon", ""),
    "Annotations": _block("Annotations", ""),
    "ToolAnnotations": ToolAnnotations,
}
KINDS = frozenset({"text", "image", "audio", "resource_link", "resource"})


def as_result(value: Any) -> Any:
    """Return what a tool of FastMCP returned as a value that a tool of ours may return.

    Args:
        value: Any value; those that are not of the library are returned unchanged.

    Raises:
        ToolError: It is a sound or a file that is not text, which no agent can be given.
    """
    if type(value).__name__ == "CallToolResult" or isinstance(value, ToolResult):
        data = getattr(value, "structured_content", None) or getattr(value, "structuredContent", None)
        content = as_result(value.content) if value.content is not None else data
        if not isinstance(content, str | OwnImage | Link | list):
            return content  # data only
        failed = bool(getattr(value, "isError", False) or getattr(value, "is_error", False))
        meta = getattr(value, "meta", None)
        return OwnResult(cast("Any", content), details=data, metadata=meta, is_error=failed)
    if _is_part(value):
        return _part(value)
    if isinstance(value, list | tuple):
        parts = cast("Sequence[Any]", value)
        if any(map(_is_part, parts)):
            return [_part(each) if _is_part(each) else each for each in parts]
    return cast("Any", value)


def _is_part(value: Any) -> bool:
    return isinstance(value, _Media) or (
        isinstance(getattr(value, "type", None), str)
        and value.type in KINDS
        and not isinstance(value, Mapping)
    )


def _part(value: Any) -> str | OwnImage | Link:
    if isinstance(value, Image):
        return OwnImage(data=value.read(), format=value.format or None)
    if isinstance(value, _Media):
        return _text_of(value.read(), value.name or os.fspath(value.path or ""))
    match value.type:
        case "text":
            return str(value.text)
        case "image":
            mime_type = getattr(value, "mimeType", None) or getattr(value, "mime_type", None)
            return OwnImage(data=base64.b64decode(value.data), format=mime_type)
        case "resource_link":
            mime_type = getattr(value, "mimeType", None) or getattr(value, "mime_type", None)
            return Link(str(value.uri), name=getattr(value, "name", None), mime_type=mime_type)
        case "resource" if hasattr(value.resource, "text"):
            return str(value.resource.text)
        case "resource":
            return _text_of(base64.b64decode(value.resource.blob), str(getattr(value.resource, "uri", "")))
        case _:
            return _text_of(base64.b64decode(value.data), "sound")


def _text_of(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(
            f"The tool returned {name or 'a file'} of {len(data)} bytes, which is neither text nor a picture; "
            "write it to the project and return its path."
        ) from None
