"""Keys of a mapping that differ in Python and are one text in JSON, as 1 and "1": who reads it would get one of their values.

pydantic writes both. JSON that has a key twice in an object becomes shorter when it is read and written once more, in C.
Mappings whose keys are all texts have none twice, so that most values are not read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, compress, islice
from operator import methodcaller
from typing import Any, Final, cast

import pydantic_core

_TEXT: Final = frozenset({str})
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_KNOWN: Final = _PLAIN | {dict, list, tuple}
SHORT_BYTES: Final = 256
"""Of JSON that is read again in less time than it takes to look at the types of a value."""
MAPPINGS_MAX: Final = 10_000
"""Whose keys are looked at where one is known to have two that are the same."""
PLACE_LETTERS_MAX: Final = 100
KEY_LETTERS_MAX: Final = 60

_values: Final = methodcaller("values")
Parts = Callable[[object], Iterator[tuple[str, object]]]


class SameKeyError(ValueError):
    """Keys of a mapping are the same in JSON; the message says which, and what to write in their place."""


def check(value: object, data: bytes, parts: Parts) -> None:
    """Raise `SameKeyError` if the JSON of a value has a key twice in an object.

    Args:
        value: What was written; a generator in it is at its end.
        data: Its JSON, which may have NaN and infinities.
        parts: Returns what a container holds, with the name of each.
    """
    if b"{" not in data:
        return
    if len(data) > SHORT_BYTES and not _may_have_other_keys(value):
        return
    try:
        again = pydantic_core.to_json(pydantic_core.from_json(data), inf_nan_mode="constants")
    except ValueError:  # nested more deeply than it reads
        again = data if _told_twice(data) is None else b""
    if len(again) != len(data):
        raise _error(value, data, parts)


def mapped(pairs: list[tuple[Any, Any]], before: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a mapping of pairs whose keys were made of those of another one; `SameKeyError` if two are the same then."""
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: dict[Any, Any] = {}
        for (key, _), old in zip(pairs, before, strict=True):
            if key in seen:
                raise _of_keys(seen[key], old, str(key), ())
            seen[key] = old
    return made


def _may_have_other_keys(value: object) -> bool:
    """Whether a mapping in it may have keys that are no texts: each level is looked at as a whole, in C."""
    level: list[Any] = [value]
    while level:
        if not _KNOWN.issuperset(map(type, level)):
            return True
        mappings: list[dict[object, object]] = [each for each in level if type(each) is dict]
        if not _TEXT.issuperset(map(type, chain.from_iterable(mappings))):
            return True
        lists: list[Sequence[object]] = [each for each in level if type(each) is list or type(each) is tuple]
        inner: list[object] = [*chain.from_iterable(map(_values, mappings)), *chain.from_iterable(lists)]
        level = list(compress(inner, [kind not in _PLAIN for kind in map(type, inner)]))
    return False


def _error(value: object, data: bytes, parts: Parts) -> SameKeyError:
    for place, mapping in islice(_mappings(value, parts), MAPPINGS_MAX):
        seen: dict[str, object] = {}
        for key in mapping:
            text = next(iter(json.loads(pydantic_core.to_json({key: None}))))
            if text in seen:
                return _of_keys(seen[text], key, text, place)
            seen[text] = key
    return SameKeyError(
        f'The tool returned something whose JSON has the key "{(_told_twice(data) or "")[:KEY_LETTERS_MAX]}" twice in one '
        "object, so a value would be lost. Give what it is made of names that differ."
    )


def _mappings(value: object, parts: Parts) -> Iterator[tuple[tuple[str, ...], Mapping[object, object]]]:
    pending: list[tuple[tuple[str, ...], object]] = [((), value)]
    while pending:
        place, one = pending.pop()
        inner = parts(one)
        if isinstance(one, Mapping):
            yield place, cast("Mapping[object, object]", one)
        pending += [((*place, name), part) for name, part in inner if type(part) not in _PLAIN]


def _told_twice(data: bytes) -> str | None:
    """Return a key that an object of a JSON text has twice."""
    found: list[str] = []

    def read(pairs: list[tuple[str, object]]) -> None:
        if len(dict(pairs)) < len(pairs):
            names = [name for name, _ in pairs]
            found.append(next(name for name in names if names.count(name) > 1))

    json.loads(data, object_pairs_hook=read)
    return found[0] if found else None


def _of_keys(first: object, second: object, text: str, place: tuple[str, ...]) -> SameKeyError:
    one, other = sorted((_shown(first), _shown(second)))
    where = f" (in {'.'.join(place)[:PLACE_LETTERS_MAX]})" if place else ""
    return SameKeyError(
        f'The tool returned a mapping with the keys {one} and {other}{where}, which are both "{text[:KEY_LETTERS_MAX]}" in '
        "JSON, so a value would be lost. Give it keys of one type, or return a list of its items: list(values.items())."
    )


def _shown(key: object) -> str:
    try:
        return repr(key)[:KEY_LETTERS_MAX].encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001  a tool's own class
        return f"a {type(key).__name__}"
