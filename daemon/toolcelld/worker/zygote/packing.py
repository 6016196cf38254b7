"""Puts the code that cells run next to each other in the zygote's memory.

CPython counts in a code object how its instructions are used. So a process that runs a function writes to its code, and the
kernel copies the page for it. Code is where there was room when its module was imported: what a cell runs is a tenth of it
and would be on every second page, half of what a worker has for itself. Copied to one place, in the order in which a cell
enters it, it is on a quarter of these pages.

What a cell enters is found out by a `trial`. The free places of the heap are to be filled before (`holes`).
"""

from __future__ import annotations

import gc
import types
from collections.abc import Mapping, Sequence


def pack(entered: Sequence[int]) -> Sequence[types.CodeType]:
    """Give functions copies of their code; return the former code, to be kept, as copies would be put in its places.

    Args:
        entered: The addresses of the code that is copied, in the order that the copies get.
    """
    order: Mapping[int, int] = {address: number for number, address in enumerate(entered)}
    functions = [
        value
        for value in gc.get_objects()
        if type(value) is types.FunctionType and id(value.__code__) in order
    ]
    functions.sort(key=lambda function: order[id(function.__code__)])
    former = [function.__code__ for function in functions]
    copies: dict[int, types.CodeType] = {}
    for function in functions:
        function.__code__ = _copy(function.__code__, copies)
    return former


def _copy(code: types.CodeType, copies: dict[int, types.CodeType]) -> types.CodeType:
    """Return the copy of a code; the code of the functions that it makes is copied before."""
    if (copy := copies.get(id(code))) is None:
        constants = [
            _copy(value, copies) if type(value) is types.CodeType else value for value in code.co_consts
        ]
        copy = copies[id(code)] = code.replace(co_consts=tuple(constants))
    return copy
