"""The worker's report of a call's result, and its encoding as frames.

A result may be as large as memory, so its parts are not joined: the header has the length of every part, and the
parts are split into chunks while they are sent. Most results are a text, with its value or without, and are written from one
format: a message of their own and its encoding take five times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from toolcell._results.normalise import FileBlock, ImageBlock, Result, TextBlock
from toolcelld.protocol.frames import LENGTHS, PAYLOAD_BYTES_MAX, FrameError, encode
from toolcelld.protocol.messages import (
    LINE_CHARACTERS_MAX,
    MODULE_CHARACTERS_MAX,
    ChunkMessage,
    FilePart,
    ImagePart,
    Kind,
    LinkPart,
    Part,
    RaisedLimit,
    ResultMessage,
    TextPart,
)

CHUNK_CHARACTERS: Final = PAYLOAD_BYTES_MAX // 4
"""Characters per chunk: UTF-8 encodes a character in at most four bytes."""
SHORT_CHARACTERS: Final = CHUNK_CHARACTERS // 2
"""Of a text that fits one frame with its value, which is as long, or is the same text written in another way."""
HEADER: Final = (
    b'{"type":"result","seq":%d,"kind":"ok","ran":true,"blocks":[{"type":"text","bytes":%d}],'
    b'%b"cpu":%a,"rss":%d,"threads":%d%b}'
)


class Usage(NamedTuple):
    """What a call has used, and what of it stays in its process."""

    cpu_seconds: float
    memory_peak_bytes: int
    threads: int
    """That are still running."""
    changed: tuple[str, ...] = ()
    """The state of the process that it has changed for good."""


class WorkerReport(NamedTuple):
    """The worker's report of one call."""

    kind: Kind
    result: Result
    ran: bool = True
    limit: RaisedLimit | None = None
    unreached: str | None = None
    missing: str = ""

    @classmethod
    def from_text(
        cls,
        kind: Kind,
        text: str,
        *,
        ran: bool = True,
        limit: RaisedLimit | None = None,
        unreached: str | None = None,
        missing: str = "",
    ) -> WorkerReport:
        """Return a report whose result is one text.

        Args:
            kind: How the call ended.
            text: The text; no block where it is empty.
            ran: Whether code of the tool has run; True by default.
            limit: The key of the limit that ended the call; None by default.
            unreached: The host that it failed to reach, empty where it is unknown; None by default: it failed otherwise.
            missing: The module that it could not import; empty by default.
        """
        return cls(kind, Result((TextBlock(text),) if text else ()), ran, limit, unreached, missing)

    def frames(self, sequence: int, usage: Usage) -> Iterable[bytes]:
        """Return the frames of the result; an error replaces a result whose header would be too large.

        Args:
            sequence: The call's number.
            usage: What the call has used.
        """
        plain = self._plain_frame(sequence, usage)
        return self._any_frames(sequence, usage) if plain is None else (plain,)

    def _any_frames(self, sequence: int, usage: Usage) -> Iterator[bytes]:
        try:
            yield from self._frames(sequence, usage)
        except FrameError as error:  # raised before the first frame: only the header can be over its bound
            text = f"The tool's result has too many parts, or links that are too long: {error}."
            kind = "tool_error" if self.kind == "ok" else self.kind
            replaced = WorkerReport.from_text(kind, text, ran=self.ran, limit=self.limit)
            yield from replaced._frames(sequence, usage)

    def _plain_frame(self, sequence: int, usage: Usage) -> bytes | None:
        """Return the frame of a text and its value; None where there is more to say, or it is too long."""
        result, details = self.result, self.result.details
        if self.kind != "ok" or not self.ran or self.limit or self.unreached is not None or self.missing:
            return None
        if len(result.blocks) != 1 or result.title or result.metadata is not None or usage.changed:
            return None
        (block,) = result.blocks
        if not isinstance(block, TextBlock):
            return None
        if len(block.text) > SHORT_CHARACTERS or len(details or b"") > SHORT_CHARACTERS:
            return None
        text = _utf8(block.text)
        length_of_details = b"" if details is None else b'"details":%d,' % len(details)
        fits = b',"fits":true' if result.fits else b""
        header = HEADER % (
            sequence, len(text), length_of_details,
            usage.cpu_seconds, usage.memory_peak_bytes, usage.threads, fits,
        )  # fmt: skip
        payload = text + (details or b"")
        return LENGTHS.pack(len(header), len(payload)) + header + payload

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
            elif isinstance(block, FileBlock):
                length = len(block.data)
                blocks.append(FilePart(bytes=length, mime_type=block.mime_type, name=block.name))
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
            unreached=self.unreached,
            missing=self.missing[:MODULE_CHARACTERS_MAX] or None,
            fits=result.fits or None,
            changed=usage.changed or None,
            size=None if fits_one_frame else size,
        )
        if fits_one_frame:
            yield encode(message, b"".join(_utf8(part) if isinstance(part, str) else part for part in parts))
            return
        yield encode(message)
        for part in parts:
            # ASCII text has one byte per character, so its chunks can be as long as those of bytes.
            chunk = PAYLOAD_BYTES_MAX if isinstance(part, bytes) or part.isascii() else CHUNK_CHARACTERS
            for start in range(0, len(part), chunk):
                piece = part[start : start + chunk]
                yield encode(ChunkMessage(), _utf8(piece) if isinstance(piece, str) else piece)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates cannot be encoded
        return text.encode(errors="replace")


def _utf8_length(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        len(_utf8(text[start : start + CHUNK_CHARACTERS])) for start in range(0, len(text), CHUNK_CHARACTERS)
    )
