"""What a worker returns, put together from frames and clipped on the way.

The header of a result says what blocks there are and how many bytes each has; the bytes follow in
that order, then those of `details` and `metadata`. Text goes through the call's `Capture`, so a
result of a gigabyte costs the daemon a buffer. Images and details are kept whole or left out,
as their size is known before their first byte. Everything is checked: a worker runs a user's
code and may say anything.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from pydantic_core import from_json

from toolcell._data import whole
from toolcell._result import BLOCKS_MAX
from toolcelld.capture import Capture
from toolcelld.clip import Clip, Clipped, Keep, fits
from toolcelld.frames import FrameError
from toolcelld.limits import Limits
from toolcelld.spills import Output

__all__ = ["BODY_BYTES_MAX", "Result", "ResultReader", "short_result", "shown_update", "update_body"]

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of an outcome on the wire: the contract's bound."""
DETAILS_BYTES_MAX: Final = 1024 * 1024
"""That they are JSON is checked on the loop, and a MiB of small objects takes a tenth of a second; larger
ones are kept beside, and a reference stands in their place."""
KEPT_BYTES_MAX: Final = BODY_BYTES_MAX - 1024 * 1024
"""Of images, as base64, and details together; the rest is for text."""
METADATA_BYTES_MAX: Final = 32 * 1024
TITLE_CHARACTERS_MAX: Final = 1000
URI_CHARACTERS_MAX: Final = 4000
MIME_TYPE_CHARACTERS_MAX: Final = 100
PART_BYTES_MAX: Final = 1 << 40
"""A length beyond it is nonsense and no size."""
SHOWN_BYTES_MAX: Final = 40 * 1024
"""Of an update in an event; a stopped call has it whole."""
SHOWN_TEXT_BYTES: Final = (36 * 1024, 6 * 1024)
"""Of its text; the second for text that is all control characters, of which JSON makes six bytes each."""
SHORT_BYTES_MAX: Final = 16 * 1024
"""What most results are far below; a longer one is worth a reader."""
TEXT_HEAD_CHARACTERS: Final = 4000
"""For messages: what a tool said, without what it dumped."""


_ONLY: Final = frozenset(
    {"type", "seq", "kind", "ran", "cpu", "rss", "threads", "limit", "blocks", "details"}
)
"""What the header of a short result has; the others are a reader's."""


class Result(NamedTuple):
    """A result as it goes on the wire."""

    body: bytes
    metadata: Mapping[str, Any]
    output: Output | None
    output_bytes: int
    text: str  # its beginning
    details_output: Output | None = None  # where they are too large to go along


@dataclass(slots=True)
class _Part:
    kind: str  # "text", "image", "details", "metadata"
    missing: int
    kept: bytearray | None
    capture: Capture | None = None  # where it is kept beside
    block: Mapping[str, Any] | None = None


def short_result(header: Mapping[str, Any], payload: bytes, limits: Limits) -> Result | None:
    """A result of one short text that fits, with its details, as a `ResultReader` would give it.

    Nearly every result is one, and stands whole in its first frame. None says that this one wants a reader, be it
    for what it is or for what is wrong with it.
    """
    blocks = cast("list[object] | None", header.get("blocks"))
    if len(payload) > SHORT_BYTES_MAX or not (isinstance(blocks, list) and len(blocks) == 1):
        return None
    block, details_length = blocks[0], header.get("details", 0)
    length = len(payload) - details_length if type(details_length) is int else -1
    # Equal to what is wanted: a text of the length that is left, and nothing else; 1.0 and true are equal to 1, too.
    if (
        block != {"type": "text", "bytes": length}
        or type(cast("dict[str, object]", block)["bytes"]) is not int
        or not 0 <= length <= len(payload)
        or not header.keys() <= _ONLY
    ):
        return None
    said, details = payload[:length], payload[length:]
    try:
        text = said.decode()
    except UnicodeDecodeError:
        return None
    if not fits(said, limits.output_lines, limits.output_bytes):
        return None
    shown = details if details and _is_json(details) else b"null"
    body = b"".join((b'{"content":[{"type":"text","text":', _encoded(text), b'}],"details":', shown, b"}"))
    return Result(body, {}, None, length, text[:TEXT_HEAD_CHARACTERS])


class ResultReader:
    """Takes the payloads of one result."""

    def __init__(
        self, header: Mapping[str, Any], capture: Capture, details_capture: Callable[[], Capture]
    ) -> None:
        self._capture = capture
        self._blocks = _blocks(header)
        self._title = header.get("title")
        if self._title is not None and not isinstance(self._title, str):
            raise FrameError("the title is no text")
        self._room = KEPT_BYTES_MAX
        self._parts: list[_Part] = []
        for block in self._blocks:
            if block["type"] == "text":
                self._parts.append(_Part("text", block["bytes"], None, block=block))
            elif block["type"] == "image":
                self._parts.append(self._whole("image", block["bytes"], block["bytes"] * 4 // 3, block))
        if "details" in header:
            length = _length(header["details"])
            if length <= DETAILS_BYTES_MAX:
                self._parts.append(self._whole("details", length, length))
            else:
                self._parts.append(_Part("details", length, None, details_capture()))
        if "metadata" in header:
            length = _length(header["metadata"])
            kept = bytearray() if length <= METADATA_BYTES_MAX else None
            self._parts.append(_Part("metadata", length, kept))
        self.missing = sum(part.missing for part in self._parts)
        self._in_one = "size" not in header  # all of it stands in the first frame
        if header.get("size", self.missing) != self.missing:
            raise FrameError(f"a size of {str(header['size'])[:20]} for parts of {self.missing} bytes")
        self._at = 0

    def _whole(self, kind: str, length: int, cost: int, block: Mapping[str, Any] | None = None) -> _Part:
        if cost > self._room:
            return _Part(kind, length, None, block=block)
        self._room -= cost
        return _Part(kind, length, bytearray(), block=block)

    def feed(self, payload: bytes) -> bool:
        """Take the next bytes; True says that the capture waits for the disk."""
        if len(payload) > self.missing:
            raise FrameError(f"{len(payload) - self.missing} bytes more than the result has")
        self.missing -= len(payload)
        if self._in_one and self.missing:
            raise FrameError(f"{self.missing} bytes less than the result has")
        waits = False
        start = 0
        while start < len(payload):
            part = self._parts[self._at]
            if not part.missing:
                self._at += 1
                continue
            piece = payload[start : start + part.missing] if start or part.missing < len(payload) else payload
            part.missing -= len(piece)
            start += len(piece)
            if part.kind == "text":
                waits = self._capture.feed(piece) or waits
            elif part.capture is not None:
                waits = part.capture.feed(piece) or waits
            elif part.kept is not None:
                part.kept += piece
        return waits

    async def flush(self) -> None:
        """Write what waits for the disk."""
        for capture in self._captures():
            await capture.flush()

    def discard(self) -> None:
        """Forget everything; harmless after the end."""
        for capture in self._captures():
            capture.discard()

    def _captures(self) -> Iterator[Capture]:
        yield self._capture
        yield from (part.capture for part in self._parts if part.capture is not None)

    def finish_now(self) -> Result | None:
        """The result, where nothing of it waits for the disk."""
        if any(part.capture is not None for part in self._parts):
            return None
        clipped = self._capture.finish_now()
        return None if clipped is None else self._result(clipped, None, None)

    async def finish(self) -> Result:
        """The result, with the whole of its text, and of large details, kept beside."""
        clipped, output = await self._capture.finish()
        details_output: Output | None = None
        for part in self._parts:
            if part.capture is not None:
                _, details_output = await part.capture.finish()
        return self._result(clipped, output, details_output)

    def _result(self, clipped: Clipped, output: Output | None, details_output: Output | None) -> Result:
        content = self._content(clipped.text, cut=clipped.cut)
        body = b"".join((b'{"content":', content, b',"details":', self._details(details_output), b"}"))
        text = clipped.text[:TEXT_HEAD_CHARACTERS]
        return Result(body, self._metadata(), output, clipped.total_bytes, text, details_output)

    def _details(self, output: Output | None) -> bytes:
        part = next((part for part in self._parts if part.kind == "details"), None)
        if part is None:
            return b"null"
        if part.kept is None:
            return _encoded({"left_out": True, "output_id": output.handle if output is not None else None})
        kept = bytes(part.kept)
        return kept if _is_json(kept) else b"null"

    def _content(self, text: str, *, cut: bool) -> bytes:
        if not cut and len(self._parts) and len(self._blocks) == 1 and self._blocks[0]["type"] == "text":
            return b'[{"type":"text","text":' + _encoded(text) + b"}]"
        content: list[object] = []
        encoded = text.encode()
        start = 0
        if cut:  # the clip is over all of the text; images stand behind it
            content.append({"type": "text", "text": text})
        images = iter(part for part in self._parts if part.kind == "image")
        for block in self._blocks:
            if block["type"] == "text":
                if not cut:
                    piece = encoded[start : start + block["bytes"]]
                    start += block["bytes"]
                    content.append({"type": "text", "text": piece.decode(errors="replace")})
            elif block["type"] == "image":
                content.append(_image(next(images)))
            else:
                content.append(block)
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
                    found: object = from_json(bytes(part.kept), allow_inf_nan=False)
                    _encoded(found)  # as it will be, with the outcome
                except ValueError:
                    continue
                if isinstance(found, dict):
                    values.update(cast("dict[str, Any]", found))
        if self._title:
            values["title"] = whole(self._title[:TITLE_CHARACTERS_MAX])
        return values


def _image(part: _Part) -> dict[str, object]:
    assert part.block is not None
    if part.kept is None:
        return {"type": "text", "text": f"[image of {part.block['bytes']} bytes left out: too large]"}
    return {
        "type": "image",
        "data": base64.b64encode(part.kept).decode("ascii"),
        "mime_type": part.block["mime_type"],
    }


# Made once: `json.dumps` with options makes an encoder for every call.
# JSON has no infinity, but a reader makes one of `1e999`: that raises, where anything of a worker's is encoded again.
_to_json: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _encoded(value: object) -> bytes:
    return _to_json(value).encode(errors="replace")


def _is_json(text: bytes) -> bool:
    try:
        from_json(text, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def _length(value: object) -> int:
    if type(value) is not int or not 0 <= value <= PART_BYTES_MAX:
        raise FrameError("a length of a result is no length")
    return value


def _blocks(header: Mapping[str, Any]) -> list[dict[str, Any]]:
    given: object = header.get("blocks", [])
    if not isinstance(given, list) or len(cast("list[object]", given)) > BLOCKS_MAX:
        raise FrameError(f"the blocks are no list of at most {BLOCKS_MAX}")
    blocks: list[dict[str, Any]] = []
    for block in cast("list[Mapping[str, object]]", given):
        match block:
            case {"type": "text", "bytes": length}:
                blocks.append({"type": "text", "bytes": _length(length)})
            case {"type": "image", "bytes": length, "mime_type": str() as mime_type}:
                blocks.append(
                    {
                        "type": "image",
                        "bytes": _length(length),
                        "mime_type": mime_type[:MIME_TYPE_CHARACTERS_MAX],
                    }
                )
            case {"type": "resource_link", "uri": str() as uri, "name": name, "mime_type": mime_type}:
                blocks.append(
                    {
                        "type": "resource_link",
                        "uri": uri[:URI_CHARACTERS_MAX],
                        "name": name[:TITLE_CHARACTERS_MAX] if isinstance(name, str) and name else None,
                        "mime_type": mime_type[:MIME_TYPE_CHARACTERS_MAX]
                        if isinstance(mime_type, str) and mime_type
                        else None,
                    }
                )
            case _:
                raise FrameError("a block of the result is none of the known ones")
    return blocks


def update_body(payload: bytes, limits: Limits, keep: Keep = "head") -> bytes | None:
    """A partial result as it goes on the wire: its blocks, with their text clipped; None when it is none."""
    try:
        update: object = from_json(payload, allow_inf_nan=False)
    except ValueError:
        return None
    if not isinstance(update, dict):
        return None
    found = cast("dict[str, object]", update)
    if not isinstance(found.get("content"), list):
        return None
    content: list[Mapping[str, object]] = []
    for block in cast("list[Mapping[str, object]]", found["content"]):
        match block:
            case {"type": "text", "text": str() as text}:
                clip = Clip(limits.output_lines, limits.output_bytes, keep)
                clip.feed(text.encode(errors="replace"))
                content.append({"type": "text", "text": clip.result().text})
            case {"type": "image", "data": str(), "mime_type": str()} | {
                "type": "resource_link",
                "uri": str(),
            }:
                content.append(block)
            case _:
                pass  # none of the contract's
    try:
        return _encoded({"content": content, "details": found.get("details")})
    except ValueError:
        return None


def shown_update(body: bytes) -> bytes:
    """The same update, small enough for one message: its text clipped further, the rest left out."""
    if len(body) <= SHOWN_BYTES_MAX:
        return body
    content: list[dict[str, object]] = from_json(body)["content"]
    text = "\n".join(str(block["text"]) for block in content if block.get("type") == "text")
    for bytes_max in SHOWN_TEXT_BYTES:
        clip = Clip(None, bytes_max)
        clip.feed(text.encode(errors="replace"))
        shown = _encoded({"content": [{"type": "text", "text": clip.result().text}], "details": None})
        if len(shown) <= SHOWN_BYTES_MAX:
            return shown
    raise AssertionError("JSON makes six bytes of one at most")
