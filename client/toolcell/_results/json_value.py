"""Python values as JSON: everything that a tool may hold becomes bytes or a ToolError; and JSON as Python values.

pydantic's serialiser does the work: it knows dataclasses, models, enums, dates, paths and sets, and it stops at
cycles and at 255 levels. Three things it does not mend. A string with a lone surrogate (a file name that is no
UTF-8) fails there, so on failure the strings are mended and it tries once more; the common case pays nothing.
An integer of more digits than Python reads back would break the parser of the result, so it is refused.
NaN and infinities, which JSON does not have, are texts, as `Decimal("NaN")` is; but a model writes null, or what is no
JSON, which is indistinguishable from None. Where either is seen, the value is written once more by way of plain values.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import islice
from typing import Any, cast

import pydantic_core
from pydantic import BaseModel

from toolcell._results import library_values
from toolcell._results.errors import ToolError
from toolcell._results.same_keys import SameKeyError, check, mapped
from toolcell._results.way_out import way_out

# sys.int_info.default_max_str_digits: a longer integer can be written as JSON, but `json.loads` refuses it.
INTEGER_DIGITS_MAX = 4300
SHORT_BITS = 64
"""Of an integer that is written at once."""
UNKNOWN = "it does not know"
DEPTH_MAX, PARTS_MAX, PLACE_LETTERS_MAX = 8, 1000, 100
"""Of the place that is told of a part without a JSON form: each part that is looked at is written once more."""
PLACES_MAX = 10
"""Of numbers that are too large; more are not told."""
# One byte for every digit and another for the rest: a run of digits is then found by plain search, which takes
# a hundredth of what an expression takes. One inside a string is found too; it is only the occasion to look closely.
_DIGITS = bytes(ord("0" if chr(byte).isascii() and chr(byte).isdigit() else " ") for byte in range(256))
_LONG_INTEGER = b"0" * (INTEGER_DIGITS_MAX + 1)
# A number beyond a float has an exponent of three digits, or as many digits as this beside one of two.
_NUMBER_PARTS = (
    bytes(
        ord("0" if chr(byte).isdigit() else chr(byte).lower() if chr(byte) in "eE" else " ")
        for byte in range(128)
    )
    + b" " * 128
)
_LARGE_EXPONENT, _MANY_DIGITS = b"e000", b"0" * 200


def whole(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced; itself where there are none."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def to_json(value: object) -> bytes:
    """Compact JSON of any value, with the texts "NaN", "Infinity" and "-Infinity"; ToolError says why there is none."""
    if type(value) is int and value.bit_length() < SHORT_BITS:
        return b"%d" % value
    written = value
    try:
        data = _serialised(value)
    except Exception:  # noqa: BLE001  a serialiser, property or generator of the tool may raise anything
        try:
            written = _mended(value)
            data = _serialised(written)
        except SameKeyError as error:
            raise ToolError(str(error)) from error
        except Exception as error:
            place, part = ("", value) if isinstance(error, RecursionError) else _culprit(value)
            why = _why(error)
            why = f": {why}" if place or UNKNOWN not in why else ""
            raise ToolError(
                f"The tool returned something of type {type(value).__name__} that has no JSON form{why}{place}. {way_out(part)}"
            ) from error
    if len(data) > INTEGER_DIGITS_MAX and _LONG_INTEGER in data.translate(_DIGITS):
        try:
            json.loads(data)
        except ValueError as error:
            raise ToolError(
                f"The tool returned an integer of more than {INTEGER_DIGITS_MAX} digits; return it as text, for example as hex(n)."
            ) from error
    try:
        check(written, data, _parts)
    except SameKeyError as error:
        raise ToolError(str(error)) from error
    return data


class NumberTooLargeError(ValueError):
    """Numbers of a JSON text are beyond what a float holds."""

    def __init__(self, places: Sequence[str]) -> None:
        super().__init__("a number is beyond what a float holds")
        self.places = places
        """Where the first of them are: "limits.seconds" or "ratios.0"."""


def from_json(text: bytes | str) -> Any:
    """The value of a text of JSON that `to_json` could have written.

    Raises:
        NumberTooLargeError: A number is beyond what a float holds: Python reads an infinity, and cannot write it again.
        ValueError: It is no JSON, which has neither NaN nor Infinity.
    """
    value = pydantic_core.from_json(text, allow_inf_nan=False)
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    parts = raw.translate(_NUMBER_PARTS, b"+")
    if (_LARGE_EXPONENT in parts or _MANY_DIGITS in parts) and (
        places := list(islice(_infinities(value, ""), PLACES_MAX))
    ):
        raise NumberTooLargeError(places)
    return value


def _infinities(value: object, place: str) -> Iterator[str]:
    if isinstance(value, float) and math.isinf(value):
        yield place
    elif isinstance(value, dict):
        for key, part in cast("dict[str, object]", value).items():
            yield from _infinities(part, f"{place}.{key}" if place else key)
    elif isinstance(value, list):
        for index, part in enumerate(cast("list[object]", value)):
            yield from _infinities(part, f"{place}.{index}" if place else str(index))


def _serialised(value: object) -> bytes:
    data = pydantic_core.to_json(value, inf_nan_mode="strings", fallback=_plainer)
    if b"null" in data or b"NaN" in data or b"Infinity" in data:
        plain = pydantic_core.to_jsonable_python(value, fallback=_plainer)
        told = pydantic_core.to_json(plain, inf_nan_mode="strings")
        if len(told) >= len(data):  # else it has a generator, which is at its end now
            return told
    return data


def _plainer(value: Any) -> object:
    """What the serialiser does not know, as something that it does."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, Sequence | AbstractSet | ValuesView):
        return list(cast("Sequence[object]", value))
    if (plain := library_values.plain(value)) is not library_values.UNKNOWN:
        return plain
    raise TypeError(f"{UNKNOWN} {type(value).__name__}")


def _mended(value: object) -> object:
    """The value with every string whole; a cycle ends in RecursionError."""
    if isinstance(value, Enum):
        return _mended(value.value)
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, BaseModel):
        return _mended(dict(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _mended(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        mapping = cast("Mapping[object, object]", value)
        return mapped([(_mended(key), _mended(item)) for key, item in mapping.items()], mapping)
    if isinstance(value, list | tuple | set | frozenset):
        return [_mended(item) for item in cast("Sequence[object]", value)]
    return library_values.without_missing([value])[0]


def _culprit(value: object) -> tuple[str, object]:
    """Return where the first part of a value is that has no JSON form, " (in orders.0)", and the part; "" for the value itself."""
    place: list[str] = []
    while len(place) < DEPTH_MAX:
        for name, part in islice(_parts(value), PARTS_MAX):
            try:
                _serialised(part)
            except Exception:  # noqa: BLE001  as above
                place.append(name)
                value = part
                break
        else:
            break
    return f" (in {'.'.join(place)[:PLACE_LETTERS_MAX]})" if place else "", value


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in cast("Mapping[object, object]", value).items())
    elif isinstance(value, list | tuple):
        yield from ((str(n), part) for n, part in enumerate(cast("Sequence[object]", value)))
    elif isinstance(value, BaseModel):
        yield from dict(value).items()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply, or holds itself"
    try:
        lines = str(error).removeprefix("Error serializing to JSON: ").splitlines()
    except Exception:  # noqa: BLE001  a tool's own exception with a __str__ that raises
        lines = []
    return (lines[0] if lines else type(error).__name__)[:300]
