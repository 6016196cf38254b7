"""How a call ended, as the worker reports it, and the frames that carry it.

A result may be as large as memory, so it is not put together a second time: the header says the
length of every part, and the parts are cut into chunks while they are sent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from toolcell._results.errors import ToolError
from toolcell._results.json_value import to_json
from toolcell._results.normalise import ImageBlock, Result, TextBlock
from toolcelld.protocol.frames import PAYLOAD_BYTES_MAX, FrameError
from toolcelld.protocol.messages import (
    LINE_CHARACTERS_MAX,
    ChunkMessage,
    ImagePart,
    Kind,
    LinkPart,
    Part,
    RaisedLimit,
    ResultMessage,
    TextPart,
    encode,
)

__all__ = ["Ending", "Usage"]

CHUNK_CHARACTERS: Final = PAYLOAD_BYTES_MAX // 4
"""Characters or bytes per chunk: four bytes is the longest that UTF-8 makes of a character."""


class Usage(NamedTuple):
    """What a call has used, and what of it is still alive."""

    cpu_seconds: float
    memory_peak_bytes: int
    threads: int


class Ending(NamedTuple):
    """What the worker reports of a call."""

    kind: Kind
    result: Result
    ran: bool = True
    limit: RaisedLimit | None = None

    @classmethod
    def from_text(
        cls,
        kind: Kind,
        text: str,
        *,
        details: object = None,
        ran: bool = True,
        limit: RaisedLimit | None = None,
    ) -> Ending:
        """An ending of words."""
        encoded = None
        if details is not None:
            with contextlib.suppress(ToolError):  # the message is what matters
                encoded = to_json(details)
        return cls(kind, Result((TextBlock(text),) if text else (), encoded), ran, limit)

    def frames(self, sequence: int, usage: Usage) -> Iterator[bytes]:
        """The result's frames; one that no header can describe is replaced by an error that says so."""
        try:
            yield from self._frames(sequence, usage)
        except FrameError as error:  # raised before anything was sent: only a header can be over its bound
            text = f"The tool's result has too many parts, or links that are too long: {error}."
            kind = "tool_error" if self.kind == "ok" else self.kind
            replaced = Ending.from_text(kind, text, ran=self.ran, limit=self.limit)
            yield from replaced._frames(sequence, usage)

    def _frames(self, sequence: int, usage: Usage) -> Iterator[bytes]:
        result = self.result
        blocks: list[Part] = []
        parts: list[str | bytes] = []
        size = 0
        for block in result.blocks:
            length = 0
            if isinstance(block, TextBlock):
                length = _utf8_length(block.text)
                blocks.append(TextPart(bytes=length))
                parts.append(block.text)
            elif isinstance(block, ImageBlock):
                length = len(block.data)
                blocks.append(ImagePart(bytes=length, mime_type=block.mime_type))
                parts.append(block.data)
            else:
                blocks.append(LinkPart(uri=block.uri, name=block.name, mime_type=block.mime_type))
            size += length
        for value in (result.details, result.metadata):
            if value is not None:
                parts.append(value)
                size += len(value)
        fits_one_frame = size <= PAYLOAD_BYTES_MAX
        message = ResultMessage(
            seq=sequence,
            kind=self.kind,
            ran=self.ran,
            blocks=tuple(blocks),
            details=None if result.details is None else len(result.details),
            metadata=None if result.metadata is None else len(result.metadata),
            title=result.title[:LINE_CHARACTERS_MAX] if result.title else None,
            cpu=usage.cpu_seconds,
            rss=usage.memory_peak_bytes,
            threads=usage.threads,
            limit=self.limit,
            size=None if fits_one_frame else size,
        )
        if fits_one_frame:
            yield encode(message, b"".join(_utf8(part) if isinstance(part, str) else part for part in parts))
            return
        yield encode(message)
        for part in parts:
            # One byte for each: text that is ASCII goes in frames as full as bytes do.
            chunk = PAYLOAD_BYTES_MAX if isinstance(part, bytes) or part.isascii() else CHUNK_CHARACTERS
            for start in range(0, len(part), chunk):
                piece = part[start : start + chunk]
                yield encode(ChunkMessage(), _utf8(piece) if isinstance(piece, str) else piece)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates are no characters
        return text.encode(errors="replace")


def _utf8_length(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        len(_utf8(text[start : start + CHUNK_CHARACTERS])) for start in range(0, len(text), CHUNK_CHARACTERS)
    )
