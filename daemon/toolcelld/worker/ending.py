"""How a call ended, as the worker reports it, and the frames that carry it.

A result may be as large as memory, so it is not put together a second time: the header says the
length of every part, and the parts are cut into chunks while they are sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from toolcell._data import to_json
from toolcell._errors import ToolError
from toolcell._result import ImageBlock, Result, TextBlock
from toolcelld.frames import PAYLOAD_BYTES_MAX, FrameError, encode

__all__ = ["Ending"]

CUT: Final = PAYLOAD_BYTES_MAX // 4
"""Characters or bytes per chunk: four bytes is the longest that UTF-8 makes of a character."""
TITLE_CHARACTERS_MAX: Final = 1000


class Ending:
    """What the worker reports of a call."""

    __slots__ = ("header", "result")

    def __init__(self, kind: str, result: Result, *, ran: bool = True) -> None:
        self.header: dict[str, Any] = {"type": "result", "kind": kind, "ran": ran}
        self.result = result

    @classmethod
    def said(cls, kind: str, text: str, *, details: object = None, ran: bool = True) -> Ending:
        """An ending of words."""
        encoded = None
        if details is not None:
            with contextlib.suppress(ToolError):  # the message is what matters
                encoded = to_json(details)
        return cls(kind, Result((TextBlock(text),) if text else (), encoded), ran=ran)

    def frames(self) -> Iterator[bytes]:
        """The result's frames; one that no header can describe is replaced by an error that says so."""
        try:
            yield from self._frames()
        except FrameError as error:  # raised before anything was sent: only a header can be over its bound
            kind = "tool_error" if self.header["kind"] == "ok" else self.header["kind"]
            text = f"The tool's result has too many parts, or links that are too long: {error}."
            replaced = Ending.said(kind, text)
            replaced.header = {**self.header, "kind": kind}
            yield from replaced._frames()

    def _frames(self) -> Iterator[bytes]:
        result = self.result
        header = dict(self.header)
        blocks: list[dict[str, Any]] = []
        parts: list[str | bytes] = []
        size = 0
        for block in result.blocks:
            length = 0
            if isinstance(block, TextBlock):
                length = _utf8_length(block.text)
                blocks.append({"type": "text", "bytes": length})
                parts.append(block.text)
            elif isinstance(block, ImageBlock):
                length = len(block.data)
                blocks.append({"type": "image", "mime_type": block.mime_type, "bytes": length})
                parts.append(block.data)
            else:
                link = {"uri": block.uri, "name": block.name, "mime_type": block.mime_type}
                blocks.append({"type": "resource_link", **link})
            size += length
        header["blocks"] = blocks
        for name, value in (("details", result.details), ("metadata", result.metadata)):
            if value is not None:
                header[name] = len(value)
                parts.append(value)
                size += len(value)
        if result.title:
            header["title"] = result.title[:TITLE_CHARACTERS_MAX]
        if size <= PAYLOAD_BYTES_MAX:
            yield encode(header, b"".join(_utf8(part) if isinstance(part, str) else part for part in parts))
            return
        yield encode({**header, "size": size})
        for part in parts:
            # One byte for each: text that is ASCII goes in frames as full as bytes do.
            cut = PAYLOAD_BYTES_MAX if isinstance(part, bytes) or part.isascii() else CUT
            for start in range(0, len(part), cut):
                piece = part[start : start + cut]
                yield encode({"type": "chunk"}, _utf8(piece) if isinstance(piece, str) else piece)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates are no characters
        return text.encode(errors="replace")


def _utf8_length(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(len(_utf8(text[start : start + CUT])) for start in range(0, len(text), CUT))
