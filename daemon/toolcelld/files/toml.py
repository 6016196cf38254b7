"""Reads TOML that others wrote, with one error for whatever is wrong with it.

The standard library's parser takes time and memory that grow with the square of the parts of a dotted key: a key of
64 KiB takes 4 GiB. So no line may have more dots than the longest of our keys could ever need, which is seen before
anything is parsed. The parser also lets errors of Python pass that are none of its own.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

DOTS_MAX: Final = 64
"""In one line, outside of strings and comments, so of keys and fractions. The longest key of ours has three parts."""
MESSAGE_CHARACTERS_MAX: Final = 200
"""The parser quotes what it could not read."""

# As the parser reads them, so that nothing is taken for a string that the parser takes for a key. Where one is not
# closed, the parser stops; here it reaches to the end, because to search on from its second letter takes the square of
# the time.
_STRING_OR_COMMENT: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}+)?'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5}+)?"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)


class TomlError(ValueError):
    """A text is not TOML that can be used; the message is what to say of the file."""


def parse_toml(raw: bytes) -> dict[str, Any]:
    """Parse a document; the caller bounds its size.

    Args:
        raw: UTF-8.

    Raises:
        TomlError: It cannot be used.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise TomlError(f"is not UTF-8 in line {line}; save it as UTF-8 text") from error
    _check_dots(text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"is not TOML: {str(error)[:MESSAGE_CHARACTERS_MAX]}") from error
    except RecursionError as error:
        raise TomlError("is nested too deeply; no key takes more than one list") from error
    except ValueError as error:  # of int()
        raise TomlError("has a number of too many digits") from error


def _check_dots(text: str) -> None:
    bare = _STRING_OR_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), start=1):
        if line.count(".") > DOTS_MAX:
            raise TomlError(f"has more than {DOTS_MAX} dots in line {number}; no key has so many parts")
