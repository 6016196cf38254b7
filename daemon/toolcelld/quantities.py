"""Durations, sizes and counts as people write them, read and shown.

The configuration and the decorator use the same words: seconds or "90s", bytes or "512MiB", and "off".
What is shown can be written back. A message here is the rest of a sentence that begins with the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeVar

__all__ = ["optional", "parse_bytes", "parse_count", "parse_seconds", "show_bytes", "show_seconds"]

SECONDS_MAX = 366 * 86_400.0  # what every clock and timer of ours can still count; longer is "off"
COUNT_MAX = 2**31 - 1  # the wire's and the kernel's counts are of 32 bits
SIZE_BYTES_MAX = 2**60  # 1 EiB; the kernel's sizes are signed 64 bits

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_BINARY = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
_BYTES = {**_BINARY, "": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
# Twenty digits at most: int() and float() of what follows stay cheap.
_AMOUNT = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]*)\s*", re.ASCII)

NumberT = TypeVar("NumberT", int, float)


def parse_seconds(value: object) -> float:
    """A duration as the configuration writes it: seconds, or "500ms", "90s", "5m", "2h", "7d"."""
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
    """A size as the configuration writes it: bytes, or "64KiB", "512MiB", "1GiB", "10MB"."""
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
    """A whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not _in_range(value, 1, COUNT_MAX):
        raise ValueError("should be a whole number from 1; write it without quotes")
    return value


def _in_range(value: float, low: float, high: float) -> bool:
    return not math.isnan(value) and low <= value <= high


def optional(parse: Callable[[object], NumberT]) -> Callable[[object], NumberT | None]:
    """The same as a limit: "off" is None, and 0 is refused, as some would mean "off" by it."""

    def parsed(value: object) -> NumberT | None:
        if value == "off" or value is None:
            return None
        number = parse(value)
        if number == 0:
            raise ValueError('is nothing at all; write "off" for no limit')
        return number

    return parsed


def show_seconds(seconds: float | None) -> str:
    """As it would be written in the configuration: "120", "0.5", "off"."""
    return "off" if seconds is None else f"{seconds:.10g}"


def show_bytes(size: int | None) -> str:
    """As it would be written in the configuration, in the largest unit that fits: "512MiB", "50000", "off"."""
    if size is None:
        return "off"
    unit = next((unit for unit, factor in _BINARY.items() if size and size % factor == 0), "")
    return f"{size // _BYTES[unit]}{unit}"
