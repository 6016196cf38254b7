"""Redacts the values of secrets in the output and the frames of a cell.

All data of a tool leaves its cell as bytes of its pipes or as frames. Redaction is done there, in one place, so it
covers every log record, message and event.

Texts such as the message of an exception are cut in the worker, so that of a value that is longer than the cut, or stands
across it, only the beginning arrives. In complete data the beginning of a value is therefore redacted, too, where a text
ends or is cut.

Each byte of a value becomes an asterisk. The text keeps its length, because the header of a result has the lengths of
its parts, and must stay correct. Bytes that may be the beginning of a value are held back until the next bytes
decide, or until the stream ends.

This prevents accidental leaks. A tool that leaks a secret on purpose can encode it in another way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import quote, quote_plus

from toolcelld.protocol.frames import Frame

LINE_BYTES_MIN = 8
"""Each line of a value is also redacted on its own, unless it is shorter and may occur in other texts."""


BEGINNING_BYTES_MIN = 8
"""A shorter beginning of a value may be any word."""
EDGES = (b'"', b'\\"', b"'", b"\n", b"\\n", b"\\u2026", "…".encode(), b"...")
"""What can follow where a text was cut: its end, an ellipsis, or the end of a string or a line, in JSON too."""


class Redactor:
    """Redacts the values of some secrets, in every spelling that our own encoders produce.

    Args:
        values: The secrets.
    """

    def __init__(self, values: Iterable[str]) -> None:
        spellings = {
            spelling.encode(errors="surrogateescape") for value in values for spelling in _spellings(value)
        }
        # The longest first: an alternation matches the first alternative, not the longest.
        self.spellings = sorted(spellings - {b""}, key=lambda spelling: (-len(spelling), spelling))
        pattern = b"|".join(map(re.escape, self.spellings))
        self._pattern = re.compile(pattern)
        self._in_any_case = re.compile(pattern, re.IGNORECASE)
        self._body: StreamRedactor | None = None  # of a message that comes in several frames
        self._body_remaining = 0

    def redacted(self, data: bytes) -> bytes:
        """Return complete data with all values redacted."""
        return self._pattern.sub(_stars, data)

    def whole(self, data: bytes) -> bytes:
        """Return complete data with all values redacted, and the beginnings of values where a text was cut."""
        data = self.redacted(data)
        shown: bytearray | None = None
        for spelling in self.spellings:
            start, seed = 0, spelling[:BEGINNING_BYTES_MIN]
            if len(spelling) <= BEGINNING_BYTES_MIN:
                continue
            while (start := data.find(seed, start)) >= 0:
                end = start + _common(data, start, spelling)
                if end == len(data) or data.startswith(EDGES, end):
                    shown = bytearray(data) if shown is None else shown
                    shown[start:end] = b"*" * (end - start)
                start = end
        return data if shown is None else bytes(shown)

    def text(self, text: str) -> str:
        """Return a text of the daemon's own about the tool, redacted; the names of hosts in it are in lower case."""
        shown = self.whole(text.encode(errors="surrogatepass"))
        return self._in_any_case.sub(_stars, shown).decode(errors="surrogatepass")

    def stream(self) -> StreamRedactor:
        return StreamRedactor(self)

    def held_bytes(self, data: bytes) -> int:
        """Return how many of the last bytes may be the beginning of a value."""
        for start in range(max(0, len(data) - len(self.spellings[0]) + 1), len(data)):
            tail = data[start:]
            if any(spelling.startswith(tail) and spelling != tail for spelling in self.spellings):
                return len(tail)
        return 0

    def frame(self, frame: Frame) -> Frame:
        """Return a frame with its header and payload redacted; the frames of one message are one stream."""
        header, payload = frame
        kind = header.get("type")
        if kind != "chunk":
            size = header.get("size")
            remaining = size - len(payload) if isinstance(size, int) else 0
            if remaining <= 0:
                return Frame(self._value(header), self.whole(payload))
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
        """Return a JSON value with all of its strings redacted; keys are kept."""
        if isinstance(value, str):
            return self.whole(value.encode(errors="surrogatepass")).decode(errors="surrogatepass")
        if isinstance(value, dict):
            pairs = cast("Mapping[str, Any]", value).items()
            return {key: self._value(item) for key, item in pairs}
        if isinstance(value, list):
            return [self._value(item) for item in cast("list[object]", value)]
        return value


def _stars(match: re.Match[bytes]) -> bytes:
    return b"*" * len(match[0])


def _common(data: bytes, start: int, spelling: bytes) -> int:
    """Return how many bytes of the data, from a position on, are the beginning of a spelling."""
    low, high = 0, min(len(spelling), len(data) - start)
    while low < high:
        middle = (low + high + 1) // 2
        if data.startswith(spelling[:middle], start):
            low = middle
        else:
            high = middle - 1
    return low


class StreamRedactor:
    """Redacts one stream, whose pieces may split a value."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        # The bytes that are held back, and what is shown of them if no value goes on: one may have ended in them, or be
        # the beginning of a longer one.
        self._held = self._shown = b""

    def feed(self, data: bytes) -> bytes:
        """Add bytes, and return those that are redacted and complete."""
        data = self._held + data
        shown = self._redactor.redacted(data)
        if self._shown != self._held:
            before = zip(self._held, self._shown, shown, strict=False)
            both = bytes(new if old == plain else old for plain, old, new in before)
            shown = both + shown[len(both) :]
        complete = len(data) - self._redactor.held_bytes(data)
        self._held, self._shown = data[complete:], shown[complete:]
        return shown[:complete]

    def flush(self) -> bytes:
        """Return the bytes that were held back, redacted."""
        shown, self._held, self._shown = self._shown, b"", b""
        return shown


def _spellings(value: str) -> Iterable[str]:
    """Yield the value and its Python `repr`, each also as JSON and as JSON in a JSON string; as part of an address, which
    errors of clients name; then its long lines."""
    for quoted in (quote, quote_plus):
        yield quoted(value, safe="", errors="surrogateescape")
    yield quote(value, errors="surrogateescape")
    for text in (value, repr(value)[1:-1]):
        yield text
        for ascii_only in (True, False):
            encoded = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            yield encoded
            yield json.dumps(encoded, ensure_ascii=ascii_only)[1:-1]
    for line in value.splitlines():
        if len(line.encode(errors="surrogateescape")) >= LINE_BYTES_MIN:
            yield line
