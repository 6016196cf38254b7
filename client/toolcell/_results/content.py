"""The values that a tool may return besides text and data: `Image`, `File`, `Link` and `ToolResult`.

Plain classes in place of dataclasses keep `import toolcell` light. An `Image` reads its file when it is made,
not when the result is sent: the file is often a temporary one that no longer exists by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Union

from toolcell._results.errors import ToolError

# A result is at most 16 MiB of JSON, and base64 makes four bytes of three.
IMAGE_BYTES_MAX = 10 * 1024 * 1024

FORMAT_CHARACTERS_MAX = 64  # the longest registered name of an image format has 32

FILE_BYTES_MAX = IMAGE_BYTES_MAX
MEDIA_TYPE_CHARACTERS_MAX = 128
FILE_NAME_CHARACTERS_MAX = 255

# The first bytes of the formats that models read.
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
    (b"<svg", "svg+xml"),
)
_ALIASES = {"jpg": "jpeg", "svg": "svg+xml"}


class Image:
    """A picture for the model.

    Args:
        path: The file to read, at once; relative to the working directory.
        data: The bytes of the picture, instead of `path`; at most 10 MiB.
        format: The format, such as "png"; default: detected for PNG, JPEG, GIF, WebP and SVG.

    Raises:
        TypeError: Neither or both of `path` and `data` are given.
        ToolError: The picture is too large, or its format is unknown.
        OSError: The file cannot be read.
    """

    __slots__ = ("data", "mime_type")

    data: bytes
    mime_type: str

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        data: bytes | None = None,
        format: str | None = None,  # noqa: A002  the public name
    ) -> None:
        if (path is None) == (data is None):
            raise TypeError("Image takes either a path or data=…")
        if path is not None:
            with open(path, "rb") as file:
                data = file.read(IMAGE_BYTES_MAX + 1)
        self.data = bytes(data or b"")
        if len(self.data) > IMAGE_BYTES_MAX:
            raise ToolError(
                f"The image {fspath(path) if path is not None else ''} is larger than {IMAGE_BYTES_MAX >> 20} MiB; "
                "make it smaller, or return a Link to it."
            )
        kind = format or _kind(self.data)
        if kind is None:
            raise ToolError(
                "The image is no PNG, JPEG, GIF, WebP or SVG; name its format: Image(…, format='png')."
            )
        kind = kind.lower().removeprefix("image/")
        if len(kind) > FORMAT_CHARACTERS_MAX or not kind.isascii() or not kind.isprintable():
            raise ToolError(
                f"The image's format is {kind[:FORMAT_CHARACTERS_MAX]!r}; write one such as 'png'."
            )
        self.mime_type = f"image/{_ALIASES.get(kind, kind)}"

    def __repr__(self) -> str:
        return f"Image({self.mime_type}, {len(self.data)} bytes)"


def _kind(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), None)


class File:
    """A file for the model: a PDF, audio, or whatever its agent can take.

    Args:
        path: The file to read, at once; relative to the working directory.
        data: The bytes of the file, instead of `path`; at most 10 MiB.
        mime_type: The media type, such as "application/pdf"; default: by the name, else "application/octet-stream".
        name: The name to show; default: the last part of `path`, else "file".

    Raises:
        TypeError: Neither or both of `path` and `data` are given.
        ToolError: The file is too large, or its media type is none.
        OSError: The file cannot be read.
    """

    __slots__ = ("data", "mime_type", "name")

    data: bytes
    mime_type: str
    name: str

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        data: bytes | None = None,
        mime_type: str | None = None,
        name: str | None = None,
    ) -> None:
        if (path is None) == (data is None):
            raise TypeError("File takes either a path or data=…")
        if path is not None:
            with open(path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
            name = name or fspath(path).rpartition("/")[2]
        self.name = (name or "file")[:FILE_NAME_CHARACTERS_MAX]
        self.data = bytes(data or b"")
        if len(self.data) > FILE_BYTES_MAX:
            raise ToolError(
                f"The file {self.name} is larger than {FILE_BYTES_MAX >> 20} MiB; make it smaller, or return a Link to it."
            )
        self.mime_type = mime_type or _media_type(self.name)
        first, slash, rest = self.mime_type.partition("/")
        if (
            not (first and slash and rest)
            or len(self.mime_type) > MEDIA_TYPE_CHARACTERS_MAX
            or not self.mime_type.isascii()
            or not self.mime_type.isprintable()
        ):
            raise ToolError(
                f"The file's media type is {self.mime_type[:MEDIA_TYPE_CHARACTERS_MAX]!r}; write one such as 'application/pdf'."
            )

    def __repr__(self) -> str:
        return f"File({self.name!r}, {self.mime_type}, {len(self.data)} bytes)"


def _media_type(name: str) -> str:
    import mimetypes

    return mimetypes.guess_type(name)[0] or "application/octet-stream"


class Link:
    """A resource that the agent may open.

    Args:
        uri: The address of the resource.
        name: The name to show; default: the last part of the URI.
        mime_type: The media type; default: unknown.
    """

    __slots__ = ("mime_type", "name", "uri")

    def __init__(self, uri: str, *, name: str | None = None, mime_type: str | None = None) -> None:
        self.uri = uri
        self.name = name or uri.rstrip("/").rpartition("/")[2] or uri
        self.mime_type = mime_type

    def __repr__(self) -> str:
        return f"Link({self.uri!r}, name={self.name!r})"


# A Union, because `|` between a type and a forward reference fails when the module runs.
Content = Union[str, Image, File, Link, Sequence[Union[str, Image, File, Link]]]  # noqa: UP007  evaluated at import, on purpose


class ToolResult:
    """A result with content for the model and data for programs.

    Args:
        content: What the model reads: text, an `Image`, a `File`, a `Link`, or a list of them; default: empty.
        details: Data for programs, as JSON, which the model does not read; default: none.
        title: The title of the call, for the user; default: unchanged.
        metadata: JSON values to merge over those of `ToolContext.metadata`; default: none.
        is_error: Whether the call ends as `tool_error`; default: False.
    """

    __slots__ = ("content", "details", "is_error", "metadata", "title")

    def __init__(
        self,
        content: Content = "",
        *,
        details: object = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        is_error: bool = False,
    ) -> None:
        self.content = content
        self.details = details
        self.title = title
        self.metadata = metadata
        self.is_error = is_error

    def __repr__(self) -> str:
        return f"ToolResult({self.content!r}, title={self.title!r}, is_error={self.is_error})"
