"""Functions that a file marks with `@tool` and does not export: they would be missing without a word.

A second `def` of the same name, a decorator above `@tool` that returns another function, and a method of a class whose
objects the file does not export. Functions that are made within functions are passed over: a factory decides what it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolcell._authoring.function import line_of, made_by_call
from toolcell._authoring.tool import MARK, MARKED

LAYERS_MAX = 20


def lost(namespace: Mapping[str, object], exported: Iterable[object]) -> Iterator[tuple[int, str]]:
    """Yield the line of each marked function that is not exported, and what to do; `exported` are those of the file's tools."""
    marked: Any = namespace.get(MARKED, ())
    layers = [layer for function in exported for layer in _layers(function)]
    known = {id(layer) for layer in layers}
    names = {getattr(layer, "__name__", "") for layer in layers}
    for function in marked:
        if id(function) in known or "<locals>" in function.__qualname__:
            continue
        place, _, name = function.__qualname__.rpartition(".")
        if place:
            if name not in names:  # else a subclass may have its own
                where = f"the method {place}.{name} has @tool, and the file exports no object of {place}"
                yield (
                    line_of(function),
                    f"{where}; write, for example: tools = [{made_by_call(namespace.get(place), place)}.{name}]",
                )
        elif (now := namespace.get(name)) is not None:  # not deleted on purpose
            yield line_of(function), _replaced(name, now)


def _replaced(name: str, now: object) -> str:
    if isinstance(getattr(now, MARK, None), dict):
        return f"the tool {name} is lost, as line {line_of(now)} defines {name} again; rename one of them"
    if isinstance(now, property):
        return f"the tool {name} is lost, as a property is no function; leave out @property"
    return f"the tool {name} is lost, as {name} is not the marked function any more; put @tool above its other decorators"


def _layers(function: Any) -> Iterator[object]:
    """A function, and those that it is bound to or wraps."""
    for _ in range(LAYERS_MAX):
        if function is None:
            return
        yield function
        function = getattr(function, "__func__", None) or getattr(function, "__wrapped__", None)
