"""Assembles a worker's result from frames, and truncates its text.

The header of a result lists the blocks and their numbers of bytes; the bytes follow in that order, then those of
`details` and `metadata`. Text goes through the call's `SpooledOutput`, so a result of a gigabyte takes one buffer of
memory. Images, files and details are kept completely or left out, as their size is known before their first byte. All input
is validated, because a worker runs code of the user.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from pydantic_core import to_json

from toolcell._results.json_value import from_json
from toolcelld.config.resolution.settings import Limits
from toolcelld.flavours import Notice
from toolcelld.output.spill import KeptOutput
from toolcelld.output.spool import SpooledOutput
from toolcelld.output.truncate import Keep, Truncated, Truncator, fits
from toolcelld.protocol.frames import FrameError
from toolcelld.protocol.messages import (
    METADATA_BYTES_MAX,
    FilePart,
    ImagePart,
    LinkPart,
    MessageError,
    ResultMessage,
    TextPart,
)

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of an outcome in a message: the contract's bound."""
DETAILS_BYTES_MAX: Final = 1024 * 1024
"""Of details in an outcome. They are parsed on the loop, and a MiB of small objects takes a tenth of a second. Larger
ones are spilled to a file, and replaced by a reference."""
KEPT_BYTES_MAX: Final = BODY_BYTES_MAX - 1024 * 1024
"""Of images, as base64, and details together; the remaining MiB is for text."""
SHOWN_BYTES_MAX: Final = 40 * 1024
"""Of an update in an event; the outcome of a stopped call has the complete update."""
SHOWN_TEXT_BYTES: Final = (36 * 1024, 6 * 1024)
"""Of its text; the second applies to text of control characters, which take six bytes each in JSON."""
STRUCTURED: Final = b',"structured":true}'
"""The end of a body whose details fit the tool's output schema."""
SHORT_BYTES_MAX: Final = 16 * 1024
"""Results up to this size need no `ResultReader`; most are much smaller."""
TEXT_HEAD_CHARACTERS: Final = 4000
"""Of the beginning of a result that messages quote."""


class Result(NamedTuple):
    """A result as it is sent to the client."""

    body: bytes
    metadata: Mapping[str, Any]
    output: KeptOutput | None
    output_bytes: int
    text: str  # its first characters
    details_output: KeptOutput | None = None  # where they are too large for the body


@dataclass(slots=True)
class _Part:
    kind: str  # "text", "image" (also other files), "details", "metadata"
    missing: int
    kept: bytearray | None
    spool: SpooledOutput | None = None  # where it is spilled to a file
    image: ImagePart | FilePart | None = None


def short_result(message: ResultMessage, payload: bytes, limits: Limits) -> Result | None:
    """Read a result of one short text, and maybe details, without a `ResultReader`.

    Nearly every result is of this kind, and is complete in its first frame.

    Args:
        message: The header of the result.
        payload: The payload of its first frame.
        limits: The limits on lines and bytes of output.

    Returns:
        The same result as from a `ResultReader`; None if it is of another kind, or invalid.
    """
    if len(payload) > SHORT_BYTES_MAX or len(message.blocks) != 1:
        return None
    (block,) = message.blocks
    length = len(payload) - (message.details or 0)
    if not isinstance(block, TextPart) or block.bytes != length:
        return None
    if message.metadata is not None or message.title or message.size is not None:
        return None
    text_bytes, details = payload[:length], payload[length:]
    try:
        text = text_bytes.decode()
    except UnicodeDecodeError:
        return None
    lines_max, bytes_max = limits.output_lines, limits.output_bytes
    is_near = length > (bytes_max or length) or (lines_max and text_bytes.count(b"\n") >= lines_max)
    if is_near and not fits(text_bytes, lines_max, bytes_max):
        return None
    shown = b"null"
    if details:
        try:
            from_json(details)
            shown = details
        except ValueError:
            pass
    end = _end(message, details, shown, limits) if message.fits else b"}"
    body = b"".join((b'{"content":[{"type":"text","text":', to_json(text), b'}],"details":', shown, end))
    return Result(body, {}, None, length, text[:TEXT_HEAD_CHARACTERS])


class ResultReader:
    """Reads the payloads of one result.

    Args:
        message: The header of the result.
        details_spool: Makes the spool for details that are too large for the body.
        limits: The limits on lines and bytes of output.

    Raises:
        MessageError: The header is inconsistent.
    """

    def __init__(
        self,
        message: ResultMessage,
        spool: SpooledOutput,
        details_spool: Callable[[], SpooledOutput],
        limits: Limits,
    ) -> None:
        self._message = message
        self._limits = limits
        self._spool = spool
        self._room_bytes = KEPT_BYTES_MAX
        self._parts: list[_Part] = []
        for block in message.blocks:
            if isinstance(block, TextPart):
                self._parts.append(_Part("text", block.bytes, None))
            elif isinstance(block, ImagePart | FilePart):
                self._parts.append(self._whole("image", block.bytes, block.bytes * 4 // 3, block))
        if (length := message.details) is not None:
            if length <= DETAILS_BYTES_MAX:
                self._parts.append(self._whole("details", length, length))
            else:
                self._parts.append(_Part("details", length, None, details_spool()))
        if (length := message.metadata) is not None:
            kept = bytearray() if length <= METADATA_BYTES_MAX else None
            self._parts.append(_Part("metadata", length, kept))
        self.missing = sum(part.missing for part in self._parts)
        if message.size not in (None, self.missing):
            problem = f"{str(message.size)[:20]} for parts of {self.missing} bytes"
            raise MessageError(message.type, "size", problem)
        self._index = 0

    def _whole(self, kind: str, length: int, cost: int, image: ImagePart | FilePart | None = None) -> _Part:
        if cost > self._room_bytes:
            return _Part(kind, length, None, image=image)
        self._room_bytes -= cost
        return _Part(kind, length, bytearray(), image=image)

    def feed(self, payload: bytes) -> bool:
        """Add the next bytes; True if `flush` is due. Raises `FrameError` if there are too many or too few."""
        if len(payload) > self.missing:
            raise FrameError(f"{len(payload) - self.missing} bytes more than the result has")
        self.missing -= len(payload)
        if self._message.size is None and self.missing:  # without a size, the first frame is complete
            raise FrameError(f"{self.missing} bytes less than the result has")
        flush_due = False
        start = 0
        while start < len(payload):
            part = self._parts[self._index]
            if not part.missing:
                self._index += 1
                continue
            piece = payload[start : start + part.missing] if start or part.missing < len(payload) else payload
            part.missing -= len(piece)
            start += len(piece)
            if part.kind == "text":
                flush_due = self._spool.feed(piece) or flush_due
            elif part.spool is not None:
                flush_due = part.spool.feed(piece) or flush_due
            elif part.kept is not None:
                part.kept += piece
        return flush_due

    async def flush(self) -> None:
        """Write the pending data to disk."""
        for spool in self._spools():
            await spool.flush()

    def discard(self) -> None:
        """Discard everything. Safe to call after the end."""
        for spool in self._spools():
            spool.discard()

    def _spools(self) -> Iterator[SpooledOutput]:
        yield self._spool
        yield from (part.spool for part in self._parts if part.spool is not None)

    def finish_now(self) -> Result | None:
        """Return the result if nothing of it is on disk; else None."""
        if any(part.spool is not None for part in self._parts):
            return None
        truncated = self._spool.finish_now()
        return None if truncated is None else self._result(truncated, None, None)

    async def finish(self) -> Result:
        """Return the result; a truncated text, and large details, are spilled to files."""
        truncated, output = await self._spool.finish()
        details_output: KeptOutput | None = None
        for part in self._parts:
            if part.spool is not None:
                _, details_output = await part.spool.finish()
        return self._result(truncated, output, details_output)

    def _result(
        self, truncated: Truncated, output: KeptOutput | None, details_output: KeptOutput | None
    ) -> Result:
        content = self._content(truncated.text, cut=truncated.cut)
        details = self._details(details_output)
        part = next((part for part in self._parts if part.kind == "details"), None)
        kept = b"" if part is None else part.kept
        whole = kept is not None and not truncated.cut
        end = _end(self._message, bytes(kept or b""), details, self._limits) if whole else b"}"
        body = b"".join((b'{"content":', content, b',"details":', details, end))
        text = truncated.text[:TEXT_HEAD_CHARACTERS]
        return Result(body, self._metadata(), output, truncated.total_bytes, text, details_output)

    def _details(self, output: KeptOutput | None) -> bytes:
        part = next((part for part in self._parts if part.kind == "details"), None)
        if part is None:
            return b"null"
        if part.kept is None:
            return _encoded({"left_out": True, "output_id": output.handle if output is not None else None})
        kept = bytes(part.kept)
        return kept if _is_json(kept) else b"null"

    def _content(self, text: str, *, cut: bool) -> bytes:
        blocks = self._message.blocks
        if not cut and len(blocks) == 1 and isinstance(blocks[0], TextPart):
            return b'[{"type":"text","text":' + _encoded(text) + b"}]"
        content: list[object] = []
        encoded = text.encode()
        start = 0
        if cut:  # all text blocks are truncated as one; images follow
            content.append({"type": "text", "text": text})
        images = iter(part for part in self._parts if part.kind == "image")
        for block in blocks:
            match block:
                case TextPart():
                    if not cut:
                        piece = encoded[start : start + block.bytes]
                        start += block.bytes
                        content.append({"type": "text", "text": piece.decode(errors="replace")})
                case ImagePart() | FilePart():
                    content.append(_image(next(images)))
                case LinkPart(uri=uri, name=name, mime_type=mime_type):
                    link = {"uri": uri, "name": name or None, "mime_type": mime_type or None}
                    content.append({"type": "resource_link", **link})
        return _encoded(content)

    def _metadata(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for part in self._parts:
            if part.kind != "metadata":
                continue
            if part.kept is None:
                values["left_out"] = True
            else:
                try:
                    value: object = from_json(bytes(part.kept))
                    _encoded(value)  # the outcome is encoded in the same way
                except ValueError:
                    continue
                if isinstance(value, dict):
                    values.update(cast("dict[str, Any]", value))
        if self._message.title:
            values["title"] = self._message.title
        return values


def _image(part: _Part) -> dict[str, object]:
    assert part.image is not None
    if part.kept is None:
        return {
            "type": "text",
            "text": f"[{part.image.type} of {part.image.bytes} bytes left out: too large]",
        }
    shown: dict[str, object] = {
        "type": part.image.type,
        "data": base64.b64encode(part.kept).decode("ascii"),
        "mime_type": part.image.mime_type,
    }
    return shown if isinstance(part.image, ImagePart) else {**shown, "name": part.image.name}


# Made once: `json.dumps` with options makes an encoder for every call. JSON has no infinity, but `1e999` is parsed as
# one; encoding that again raises ValueError.
_to_json: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _encoded(value: object) -> bytes:
    return _to_json(value).encode(errors="replace")


def _end(message: ResultMessage, details: bytes, shown: bytes, limits: Limits) -> bytes:
    """Return the end of a body: whether its details are what the worker held against the schema, and within the limits.

    Text that is shown is bounded by the limits, and structured content is shown by some agents in its place.
    """
    fits = message.fits and message.kind == "ok" and shown == (details or b"null")
    within = limits.output_bytes is None or len(details) <= limits.output_bytes
    return STRUCTURED if fits and within else b"}"


def _is_json(text: bytes) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def update_body(
    payload: bytes, limits: Limits, keep: Keep = "head", notice: Notice = "plain"
) -> bytes | None:
    """Return a partial result as it is sent to the client.

    Args:
        payload: The update as JSON.
        limits: The limits on lines and bytes of output.
        keep: Which end of a long text is kept; "head" by default.
        notice: The words that say that it was truncated; "plain" by default.

    Returns:
        Its valid blocks, with their text truncated, as JSON; None if the payload is no valid update.
    """
    try:
        update: object = from_json(payload)
    except ValueError:
        return None
    if not isinstance(update, dict):
        return None
    value = cast("dict[str, object]", update)
    if not isinstance(value.get("content"), list):
        return None
    content: list[Mapping[str, object]] = []
    for block in cast("list[Mapping[str, object]]", value["content"]):
        match block:
            case {"type": "text", "text": str() as text}:
                truncator = Truncator(limits.output_lines, limits.output_bytes, keep, notice)
                truncator.feed(text.encode(errors="replace"))
                content.append({"type": "text", "text": truncator.result().text})
            case (
                {"type": "image", "data": str(), "mime_type": str()}
                | {
                    "type": "file",
                    "data": str(),
                    "mime_type": str(),
                    "name": str(),
                }
                | {
                    "type": "resource_link",
                    "uri": str(),
                }
            ):
                content.append(block)
            case _:
                pass  # not a block of the contract
    try:
        return _encoded({"content": content, "details": value.get("details")})
    except ValueError:
        return None


def shown_update(body: bytes) -> bytes:
    """Return an update that is small enough for one event: its text truncated further, everything else left out."""
    if len(body) <= SHOWN_BYTES_MAX:
        return body
    content: list[dict[str, object]] = from_json(body)["content"]
    text = "\n".join(str(block["text"]) for block in content if block.get("type") == "text")
    for bytes_max in SHOWN_TEXT_BYTES:
        truncator = Truncator(None, bytes_max)
        truncator.feed(text.encode(errors="replace"))
        shown = _encoded({"content": [{"type": "text", "text": truncator.result().text}], "details": None})
        if len(shown) <= SHOWN_BYTES_MAX:
            return shown
    raise AssertionError("JSON encodes a byte in at most six bytes")
