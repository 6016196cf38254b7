"""What the fields of a host's messages may be: each reader returns the value, or raises ValueError with what it should be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

NAMES_MAX: Final = 256
NAME_CHARACTERS_MAX: Final = 200
NUMBER_MAX: Final = 2**53 - 1
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

Reader: TypeAlias = Callable[[object], Any]


def text(most: int, least: int = 0) -> Reader:
    """A text of so many characters, by default from none on."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise ValueError(f"should be a text of {least} to {most} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("holds half a surrogate pair, which is no text") from None
        return value

    return read


def texts(most: int) -> Reader:
    """A list of texts of at most so many characters each, as a tuple."""
    one = text(most)

    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or len(cast("list[object]", value)) > NAMES_MAX:
            raise ValueError(f"should be a list of at most {NAMES_MAX} texts")
        return tuple(one(each) for each in cast("list[object]", value))

    return read


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("should be true or false")  # noqa: TRY004  as the others
    return value


def seconds(most: float) -> Reader:
    """A number of seconds from 0 on."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ValueError(f"should be a number of seconds from 0 to {most:g}")
        return float(value)

    return read


def number(value: object) -> int:
    """A whole number that every language has, from 0 on."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBER_MAX:
        raise ValueError("should be a whole number")
    return value


def mapping(value: object) -> dict[str, Any]:
    """An object of JSON."""
    if not isinstance(value, dict):
        raise ValueError("should be an object")  # noqa: TRY004  as the others
    return cast("dict[str, Any]", value)


def one_of(*words: str) -> Reader:
    """One of these words."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"should be one of {', '.join(words)}")
        return value

    return read


def some_of(*words: str) -> Reader:
    """A list of these words, as a tuple."""
    one = one_of(*words)
    words_of = texts(NAME_CHARACTERS_MAX)
    return lambda value: tuple(one(each) for each in words_of(value))


def trace(value: object) -> str:
    """A trace context of W3C, or an empty text."""
    if not isinstance(value, str) or (value and _TRACEPARENT.fullmatch(value) is None):
        raise ValueError("should be a W3C trace context, 00-…-…-01")
    return value


def anything(value: object) -> object:
    """Any value of JSON."""
    return value
