"""Truncates an output to what the model reads.

A `Truncator` receives bytes in pieces and holds at most `bytes_max` of them: the first ones, the last ones, or half of
each. While the output fits, the two buffers together are the complete output. `feed` may receive gigabytes, so it only
counts newlines and keeps slices; `result` decodes and truncates what is held. That is sufficient: a byte that is not
UTF-8 becomes three bytes (U+FFFD), so `bytes_max` bytes of input are at least `bytes_max` bytes of text.

Both limits apply together, and the notice counts within both. Its wordings are in `toolcelld.flavours`; the line notice is
used where only the line limit applied, the byte notice where the byte limit cut more. A line ends with its newline:
`"a\\n"` is one line. Where the limits leave no room for a notice there is none, and only `cut` is set.
"""

from __future__ import annotations

import codecs
import sys
from dataclasses import dataclass
from typing import Literal

from toolcelld.flavours import NOTICES, Notice

Keep = Literal["head", "tail", "middle"]

# The limit where the byte limit is off: no body of the protocol is larger.
BYTES_CEILING = 16 * 1024 * 1024

# A UTF-8 character has at most three bytes after its first.
_CONTINUATIONS_MAX = 3

# The text before and after the notice, and the number of lines that the notice takes with them.
_FRAMES: dict[Keep, tuple[str, str, int]] = {
    "head": ("\n\n", "", 2),
    "tail": ("", "\n\n", 2),
    "middle": ("\n\n", "\n\n", 3),
}


@dataclass(frozen=True, slots=True)
class Truncated:
    """A truncated output, and the figures of the complete one."""

    text: str
    cut: bool
    total_bytes: int
    total_lines: int
    omitted_lines: int


@dataclass(frozen=True, slots=True)
class _End:
    """One end of an output, cut to its share; `by_lines` if the byte limit did not cut more."""

    data: bytes
    lines: int
    by_lines: bool


class Truncator:
    """Holds as much of a stream as its result may need.

    Args:
        lines_max: The limit on lines; None or 0 is no limit.
        bytes_max: The limit on bytes of UTF-8; None or 0 is `BYTES_CEILING`.
        keep: Which end is kept: "head", the default, "tail", or "middle" for both ends without the middle.
        notice: The words that say what is omitted: a key of `toolcelld.flavours.NOTICES`. Default: "plain".
    """

    __slots__ = (
        "_bytes_max",
        "_ends_open",
        "_head",
        "_head_bytes",
        "_keep",
        "_lines_max",
        "_newlines",
        "_notice",
        "_tail",
        "_tail_bytes",
        "total_bytes",
    )

    def __init__(
        self,
        lines_max: int | None,
        bytes_max: int | None,
        keep: Keep = "head",
        notice: Notice = "plain",
    ) -> None:
        self._lines_max = lines_max or sys.maxsize
        self._bytes_max = min(bytes_max or BYTES_CEILING, BYTES_CEILING)
        self._keep: Keep = keep
        self._notice: Notice = notice
        self._head_bytes, self._tail_bytes = _shares(keep, self._bytes_max)
        # The mutable state: the two ends of the stream so far, and the counters.
        self._head = bytearray()
        self._tail = bytearray()
        self._newlines = 0
        self._ends_open = False
        self.total_bytes = 0

    @property
    def total_lines(self) -> int:
        """The number of lines so far, including an unterminated last one."""
        return self._newlines + self._ends_open

    @property
    def over(self) -> bool:
        """Whether the stream has certainly passed a limit.

        Bytes that are not UTF-8 may still make it pass the byte limit in `result`, which decodes them.
        """
        return self.total_bytes > self._bytes_max or self.total_lines > self._lines_max

    def feed(self, data: bytes) -> None:
        """Add the next bytes, which may split a character."""
        if not data:
            return
        self.total_bytes += len(data)
        self._newlines += data.count(b"\n")
        self._ends_open = not data.endswith(b"\n")
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
        if self._tail_bytes and len(data) > room:
            self._tail += data[max(room, len(data) - self._tail_bytes) :]
            # The front is dropped at twice the size, so that not every small chunk moves the buffer.
            if len(self._tail) > 2 * self._tail_bytes:
                del self._tail[: -self._tail_bytes]

    def result(self) -> Truncated:
        """Return the truncated output of everything so far."""
        if self.total_bytes > self._bytes_max:
            first = codecs.utf_8_decode(self._head, "replace", False)[0].encode()
            last = _from_a_character(self._tail[-self._tail_bytes :]).decode(errors="replace").encode()
            return self._cut(first, last, over_bytes=True)
        text = (self._head + self._tail).decode(errors="replace")
        whole = text.encode()
        over_bytes = len(whole) > self._bytes_max
        if over_bytes or self.total_lines > self._lines_max:
            return self._cut(whole, whole, over_bytes=over_bytes)
        return Truncated(text, False, self.total_bytes, self.total_lines, 0)

    def _cut(self, first: bytes, last: bytes, *, over_bytes: bool) -> Truncated:
        """Join a beginning of `first`, the notice and an end of `last` within both limits."""
        before, after, notice_lines = _FRAMES[self._keep]

        by_lines, by_bytes = NOTICES[self._notice]

        def notice(omitted_lines: int | None, omitted_bytes: int = 0) -> bytes:
            text = by_bytes if omitted_lines is None else by_lines
            text = text.format(lines=omitted_lines, bytes=omitted_bytes, most=self._bytes_max)
            return f"{before}{text}{after}".encode()

        lines_left = self._lines_max - notice_lines
        bytes_left = self._bytes_max - max(len(notice(None, self.total_bytes)), len(notice(self.total_lines)))
        keep = self._keep
        has_notice = lines_left > 0 and bytes_left > 0
        if not has_notice:
            lines_left, bytes_left = self._lines_max, self._bytes_max
            # Two ends without a notice between them would read as one text
            keep = "head" if keep == "middle" else keep
        head_lines, tail_lines = _shares(keep, lines_left)
        head_bytes, tail_bytes = _shares(keep, bytes_left)
        head = _beginning(first, head_lines, head_bytes)
        tail = _ending(last, tail_lines, tail_bytes)

        # A line of which both ends are shown is counted twice, so the difference may be negative.
        omitted_lines = max(0, self.total_lines - head.lines - tail.lines)
        over_lines = self.total_lines > self._lines_max
        lines_bound = over_lines and (not over_bytes or (head.by_lines and tail.by_lines))
        omitted_bytes = max(0, self.total_bytes - len(head.data) - len(tail.data))
        joined_notice = notice(omitted_lines if lines_bound else None, omitted_bytes) if has_notice else b""
        text = (head.data + joined_notice + tail.data).decode()
        return Truncated(text, True, self.total_bytes, self.total_lines, omitted_lines)


def fits(valid: bytes, lines_max: int | None, bytes_max: int | None) -> bool:
    """Return whether a valid UTF-8 text is within both limits, so that a `Truncator` would not change it.

    Args:
        valid: The text.
        lines_max: The limit on lines; None or 0 is no limit.
        bytes_max: The limit on bytes; None or 0 is `BYTES_CEILING`.
    """
    if len(valid) > min(bytes_max or BYTES_CEILING, BYTES_CEILING):
        return False
    if not lines_max:
        return True
    return valid.count(b"\n") < lines_max or _count_lines(valid) <= lines_max


def _shares(keep: Keep, amount: int) -> tuple[int, int]:
    """Divide an amount between the beginning and the end."""
    match keep:
        case "head":
            return amount, 0
        case "tail":
            return 0, amount
        case _:
            return amount - amount // 2, amount // 2


def _beginning(valid: bytes, lines: int, size: int) -> _End:
    """Return the first lines, without the last one's newline, in at most `size` bytes of complete characters."""
    end, by_lines = len(valid), not lines
    if not lines:
        end = 0
    elif valid.count(b"\n") >= lines:
        end, by_lines = len(valid) - len(valid.split(b"\n", lines)[-1]) - 1, True
    if end > size:
        end, by_lines = size, False
        while end and _is_continuation(valid[end]):
            end -= 1
    data = valid[:end]
    return _End(data, lines if by_lines else _count_lines(data), by_lines)


def _ending(valid: bytes, lines: int, size: int) -> _End:
    """Return the last lines, in at most `size` bytes of complete characters."""
    body = valid.removesuffix(b"\n")
    start, by_lines = 0, not lines
    if not lines:
        start = len(valid)
    elif body.count(b"\n") >= lines:
        start, by_lines = len(body.rsplit(b"\n", lines)[0]) + 1, True
    if len(valid) - start > size:
        start, by_lines = len(valid) - size, False
        while start < len(valid) and _is_continuation(valid[start]):
            start += 1
    data = valid[start:]
    return _End(data, lines if by_lines else _count_lines(data), by_lines)


def _from_a_character(data: bytearray) -> bytearray:
    """Drop the bytes that may be the rest of an earlier character.

    A character has at most three continuation bytes, so the bytes after them decode as in the complete output.
    """
    start = 0
    while start < min(_CONTINUATIONS_MAX, len(data)) and _is_continuation(data[start]):
        start += 1
    return data[start:]


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
