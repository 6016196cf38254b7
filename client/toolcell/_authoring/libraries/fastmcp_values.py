"""Stand-ins for the values that FastMCP's and MCP's tools return, and their reading as results of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolcell._results.content import File as OwnFile
from toolcell._results.content import Image as OwnImage
from toolcell._results.content import Link
from toolcell._results.content import ToolResult as OwnResult
from toolcell._results.mcp_content import is_blocks, text_or_file

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
    names = {"type": kind, "__doc__": f"MCP's {name}.", "__module__": "mcp.types"}
    return cast("type[_Block]", type(name, (_Block,), names))


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
AUDIO_FORMATS = {"mp3": "mpeg", "m4a": "mp4"}


def as_result(value: Any) -> Any:
    """Return what a tool of FastMCP returned as a value that a tool of ours may return.

    Args:
        value: Any value; those that are not of the library are returned unchanged. MCP's own types are understood of
            every tool, by `toolcell._results.mcp_content`.

    Raises:
        ToolError: A file is too large, or its media type is none.
    """
    if isinstance(value, ToolResult):
        data = value.structured_content
        content = as_result(value.content) if value.content is not None else data
        if not (isinstance(content, str | OwnImage | OwnFile | Link | list) or is_blocks(content)):
            return content  # data only
        return OwnResult(cast("Any", content), details=data, metadata=value.meta)
    if isinstance(value, _Media):
        return _part(value)
    if isinstance(value, list | tuple):
        parts = cast("Sequence[Any]", value)
        if any(isinstance(each, _Media) for each in parts):
            return OwnResult([_part(each) if isinstance(each, _Media) else each for each in parts])
    return cast("Any", value)


def _part(value: _Media) -> str | OwnImage | OwnFile:
    if isinstance(value, Image):
        return OwnImage(data=value.read(), format=value.format or None)
    unnamed = f"file.{value.format}" if value.format else ""
    name = value.name or str(os.fspath(value.path or "")).rpartition("/")[2] or unnamed
    mime_type = f"audio/{AUDIO_FORMATS.get(value.format, value.format or 'wav')}"
    return text_or_file(value.read(), name, mime_type if isinstance(value, Audio) else None)
