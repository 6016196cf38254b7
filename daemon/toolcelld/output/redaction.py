"""Takes the values of secrets out of whatever a cell says, before anybody hears it.

Everything that a tool prints, returns, logs, asks or dies with leaves its cell in two forms: bytes of its
pipes, and frames. So this is done in the cell, once, and no record, message or event behind it can forget it.

Each byte of a value becomes an asterisk. The text keeps its length, because a result announces the lengths of
its parts before it has them, and an announcement that becomes wrong would be an error of its own.
What may be the beginning of a value is held back until the next bytes tell, or until the stream ends.

It helps against accidents. A tool that wants to give a secret away can always write it otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from toolcelld.protocol.frames import Frame

__all__ = ["Redactor", "StreamRedactor"]

LINE_BYTES_MIN = 8
"""A line of a value is redacted by itself, too; a shorter one is a word that other texts have."""


class Redactor:
    """The values of some secrets, in every spelling that our own encoders give them."""

    def __init__(self, values: Iterable[str]) -> None:
        spellings = {
            spelling.encode(errors="surrogateescape") for value in values for spelling in _spellings(value)
        }
        # The longest first: an alternation takes the first that fits, not the longest.
        self.spellings = sorted(spellings - {b""}, key=lambda spelling: (-len(spelling), spelling))
        self._pattern = re.compile(b"|".join(map(re.escape, self.spellings)))
        self._body: StreamRedactor | None = None  # of a message that comes in several frames
        self._body_remaining = 0

    def redacted(self, data: bytes) -> bytes:
        """Bytes that are whole."""
        return self._pattern.sub(lambda match: b"*" * len(match[0]), data)

    def stream(self) -> StreamRedactor:
        """For a stream of its own."""
        return StreamRedactor(self)

    def held_bytes(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of a value."""
        for start in range(max(0, len(data) - len(self.spellings[0]) + 1), len(data)):
            tail = data[start:]
            if any(spelling.startswith(tail) for spelling in self.spellings):
                return len(tail)
        return 0

    def frame(self, frame: Frame) -> Frame:
        """A frame, with its header; the parts of a long message are one stream."""
        header, payload = frame
        kind = header.get("type")
        if kind != "chunk":
            size = header.get("size")
            remaining = size - len(payload) if isinstance(size, int) else 0
            if remaining <= 0:
                return Frame(self._value(header), self.redacted(payload))
            self._body, self._body_remaining = self.stream(), remaining
            return Frame(self._value(header), self._body.feed(payload))
        if self._body is None:
            return Frame(self._value(header), self.redacted(payload))
        self._body_remaining -= len(payload)
        payload = self._body.feed(payload)
        if self._body_remaining <= 0:
            payload += self._body.flush()
            self._body = None
        return Frame(self._value(header), payload)

    def _value(self, value: Any) -> Any:
        """A value of JSON with all of its strings redacted."""
        if isinstance(value, str):
            return self.redacted(value.encode(errors="surrogatepass")).decode(errors="surrogatepass")
        if isinstance(value, dict):
            pairs = cast("Mapping[str, Any]", value).items()
            return {key: self._value(item) for key, item in pairs}
        if isinstance(value, list):
            return [self._value(item) for item in cast("list[object]", value)]
        return value


class StreamRedactor:
    """One stream, in pieces that may cut a value in two."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be shown by now."""
        data = self._redactor.redacted(self._held + data)
        held = self._redactor.held_bytes(data)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def flush(self) -> bytes:
        """The rest: what was held back is no value after all."""
        held, self._held = self._held, b""
        return held


def _spellings(value: str) -> Iterable[str]:
    """Plain and as Python shows it, each also within JSON, and within JSON that is a text of JSON."""
    for text in (value, repr(value)[1:-1]):
        yield text
        for ascii_only in (True, False):
            encoded = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            yield encoded
            yield json.dumps(encoded, ensure_ascii=ascii_only)[1:-1]
    for line in value.splitlines():
        if len(line.encode(errors="surrogateescape")) >= LINE_BYTES_MIN:
            yield line
