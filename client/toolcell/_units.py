"""Durations, sizes and counts: how they are written, and how they are shown to people.

The decorator, the configuration, the limits of a call and the command line read them here: seconds or "90s", bytes or
"512MiB", and "off" for no limit. A message of an error is the rest of a sentence that begins with the value.

`show_seconds` and `show_bytes` return what can be written back. `format_seconds` and `format_bytes` round for people.

Why not `pydantic.ByteSize`: it reads "10Mb" as megabytes, "12bit" as a byte and `True` as 1, and a tool's file that
declares no limits does not import pydantic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeVar

SECONDS_MAX = 366 * 86_400.0  # what every clock and timer of ours can still count; longer is "off"
COUNT_MAX = 2**31 - 1  # the wire's and the kernel's counts are of 32 bits
OPEN_FILES_MIN = 32  # Node needs 24 before it has loaded a file, a Python worker a dozen
SIZE_BYTES_MAX = 2**60  # 1 EiB; the kernel's sizes are signed 64 bits

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_LARGEST_FIRST = tuple((unit, factor) for unit, factor in reversed(_SECONDS.items()) if unit)
_BINARY = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
_BYTES = {**_BINARY, "": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
# Twenty digits at most: int() and float() of what follows stay cheap.
_AMOUNT = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]*)\s*", re.ASCII)

_SHOWN_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")
_SHOWN_SPANS = ((86_400.0, "days", "day"), (3600.0, "h", "h"), (60.0, "min", "min"))

NumberT = TypeVar("NumberT", int, float)


def parse_seconds(value: object) -> float:
    """Read a duration: seconds, or "500ms", "90s", "5m", "2h", "7d". Raises ValueError."""
    remedy = 'write seconds, or "500ms", "90s", "5m", "2h", "7d"'
    if isinstance(value, str):
        amount = _AMOUNT.fullmatch(value)
        if amount is None or amount[2] not in _SECONDS:
            raise ValueError(f"is no duration; {remedy}")
        value = float(amount[1]) * _SECONDS[amount[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not _in_range(value, 0, SECONDS_MAX):
        raise ValueError(f"is no duration between 0 and 366 days; {remedy}")
    return float(value)


def parse_bytes(value: object) -> int:
    """Read a size: bytes, or "64KiB", "512MiB", "1.5 GiB", "10MB". Raises ValueError."""
    remedy = 'write bytes, or "64KiB", "512MiB", "1GiB"'
    if isinstance(value, str):
        amount = _AMOUNT.fullmatch(value)
        if amount is None or amount[2] not in _BYTES:
            raise ValueError(f"is no size; {remedy}")
        whole = (
            float(amount[1]) * _BYTES[amount[2]] if "." in amount[1] else int(amount[1]) * _BYTES[amount[2]]
        )
        value = int(whole)
    if isinstance(value, bool) or not isinstance(value, int) or not _in_range(value, 0, SIZE_BYTES_MAX):
        raise ValueError(f"is no size between 0 and 1 EiB; {remedy}")
    return value


def parse_count(value: object) -> int:
    """Read a whole number from 1. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not _in_range(value, 1, COUNT_MAX):
        raise ValueError("should be a whole number from 1; write it without quotes")
    return value


def parse_open_files(value: object) -> int:
    """Read a limit on open files, which a worker needs some of itself. Raises ValueError."""
    count = parse_count(value)
    if count < OPEN_FILES_MIN:
        raise ValueError(
            f"should be {OPEN_FILES_MIN} or more; a worker needs as many before the tool has any"
        )
    return count


def _in_range(value: float, low: float, high: float) -> bool:
    return not math.isnan(value) and low <= value <= high


def optional(parse: Callable[[object], NumberT]) -> Callable[[object], NumberT | None]:
    """Return the parser of a limit: "off" is None, and 0 is refused, as some would mean "off" by it."""

    def parsed(value: object) -> NumberT | None:
        if value == "off" or value is None:
            return None
        number = parse(value)
        if number == 0:
            raise ValueError('is nothing at all; write "off" for no limit')
        return number

    return parsed


def show_seconds(seconds: float | None) -> str:
    """Return a duration as it is written, in the largest unit that divides it: "90s", "2m", "500ms", "off"."""
    if seconds is None:
        return "off"
    milliseconds = round(seconds * 1000, 6)
    for unit, factor in _LARGEST_FIRST:
        if milliseconds and milliseconds % (factor * 1000) == 0:
            return f"{milliseconds / (factor * 1000):.0f}{unit}"
    return f"{seconds:.13f}".rstrip("0").rstrip(".") + "s"


def show_bytes(size: int | None) -> str:
    """Return a size as it is written, in the largest unit that divides it: "512MiB", "50000", "off"."""
    if size is None:
        return "off"
    unit = next((unit for unit, factor in _BINARY.items() if size and size % factor == 0), "")
    return f"{size // _BYTES[unit]}{unit}"


def format_bytes(size: float) -> str:
    """Return a size for people: 1442 → "1.41 KiB", 536870912 → "512 MiB"."""
    value, place = float(size), 0
    while value >= 1023.5 and place + 1 < len(_SHOWN_SIZES):
        value, place = value / 1024, place + 1
    return f"{value:.3g} {_SHOWN_SIZES[place]}" if value < 9.95 else f"{value:.0f} {_SHOWN_SIZES[place]}"


def format_seconds(seconds: float) -> str:
    """Return a duration for people: 0.004 → "4 ms", 1.42 → "1.4 s", 300 → "5 min"."""
    if seconds < 0.0995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for step_seconds, many, one in _SHOWN_SPANS:
        if seconds >= 2 * step_seconds:
            return f"{seconds // step_seconds:.0f} {many}"
        if seconds >= step_seconds and step_seconds > 60:
            return f"1 {one}"
    return f"{seconds:.0f} s"
