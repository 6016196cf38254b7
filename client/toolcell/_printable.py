r"""Escapes characters that control a terminal or a log, as Python writes them: `\x1b`, `\r`, `\u202e`.

Control characters (C0, C1), bidirectional marks, line and paragraph separators, and characters without a shape are
escaped. Text of every script stays as it is, with the two joiners that scripts and emojis need.
The ranges are written out, because computing them from `unicodedata` takes longer than the start of a command; a test
compares both.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_ESCAPED: Final = (
    "\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
_IN_LINES: Final = re.compile(rf"(?!\t|\r?\n)[{_ESCAPED}]")
_IN_A_LINE: Final = re.compile(f"[{_ESCAPED}]")
_IN_JSON: Final = _IN_LINES  # line ends between the values are JSON's own; those within are escaped already

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, *, lines: bool = True) -> str:
    r"""Return a text that cannot control a terminal.

    Args:
        text: Any text.
        lines: Whether tabs and ends of lines (`\n`, `\r\n`) stay as they are; by default they do.
    """
    return (_IN_LINES if lines else _IN_A_LINE).sub(_escape, text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON that can be printed on a terminal; it reads back as the same value."""
    return _IN_JSON.sub(_json_escape, json.dumps(value, indent=indent, ensure_ascii=False))


def _escape(found: re.Match[str]) -> str:
    letter = found[0]
    if letter in _SHORT:
        return _SHORT[letter]
    number = ord(letter)
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


def _json_escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"
