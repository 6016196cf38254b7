"""Makes the objects of the zygote immortal, so that the processes that it forks do not copy the pages they are in.

CPython keeps the number of references to an object in the object. A call of a function writes to the function, its
code and its constants, so the kernel copies their pages for a process that only reads them: 3.5 MB in each cell.
Since 3.12 (PEP 683) an object with a certain count is immortal: its count is not written any more. Python has no
function for it (`PyUnstable_SetImmortal` of 3.15 is for new objects that are no strings), so the count is written here,
after it was verified that this interpreter keeps it where 3.12 and 3.13 do. Other interpreters are left as they are;
`gc.freeze` keeps the garbage collector from writing to the same pages in all of them.

Why that is safe: an immortal object is never freed, and nothing else changes for it. These objects are the modules that
the zygote has imported and what they refer to, which exist until a worker ends by `os._exit`. Left out is what has to
be freed for an effect, such as files and sockets, and what belongs to running code. An object of theirs that a tool
removes, such as a module that it imports again, stays in memory. Extensions that were compiled for the stable ABI of
Python before 3.12 write to the count; they could free an object after 2**31 unmatched writes, as they could free None.
"""

from __future__ import annotations

import ctypes
import gc
import io
import socket
import sys
import types
from collections import deque
from collections.abc import Iterable
from itertools import repeat
from typing import Final

IMMORTAL: Final = 0xFFFFFFFF
"""The lower half of the count, which is the object's first word; _Py_IMMORTAL_REFCNT of 3.12 and 3.13, 64 bits."""
VERSIONS: Final = ((3, 12), (3, 13))
LEFT_OUT: Final = (
    io.FileIO, io.BufferedRandom, io.BufferedReader, io.BufferedWriter, io.TextIOWrapper, socket.socket,
    types.AsyncGeneratorType, types.CoroutineType, types.FrameType, types.GeneratorType, types.TracebackType,
)  # fmt: skip


def is_supported() -> bool:
    """Return whether this interpreter keeps the counts of references as CPython 3.12 and 3.13 do."""
    if (
        sys.implementation.name != "cpython"
        or sys.version_info[:2] not in VERSIONS
        or sys.abiflags  # free-threaded or debug: objects begin with other words
        or sys.maxsize < 2**32
        or sys.byteorder != "little"
        or sys.getrefcount(None) != IMMORTAL
    ):
        return False
    probe = object()
    count = ctypes.c_ssize_t.from_address(id(probe))
    if count.value != sys.getrefcount(probe) - 1:  # which counts its argument too
        return False
    count.value = IMMORTAL
    return sys.getrefcount(probe) == IMMORTAL and len({probe, probe}) == 1 and count.value == IMMORTAL


def make_immortal() -> bool:
    """Make immortal what the garbage collector knows, what functions consist of, and what modules contain.

    Other objects that these refer to are as many again, and would save a tenth of what these do.

    Returns:
        Whether this interpreter supports it; otherwise nothing is changed.
    """
    if not is_supported():
        return False
    objects = gc.get_objects()
    left_out: set[type] = {kind for kind in set(map(type, objects)) if issubclass(kind, LEFT_OUT)}
    kept = [value for value in objects if type(value) not in left_out]
    names = [value.__dict__ for value in kept if type(value) is types.ModuleType]
    codes = [value.__code__ for value in kept if type(value) is types.FunctionType]
    _write_counts(kept)
    _write_counts(value for value in gc.get_referents(*names) if type(value) not in left_out)
    while codes:
        constants = [code.co_consts for code in codes]
        for found in (codes, constants, gc.get_referents(*constants)):
            _write_counts(found)
        codes = [value for values in constants for value in values if type(value) is types.CodeType]
    return True


def _write_counts(objects: Iterable[object]) -> None:
    # All memory as words of 4 bytes: `from_address` for each object takes five times as long.
    words = memoryview((ctypes.c_uint32 * 2**45).from_address(0)).cast("B").cast("I")
    numbers = map(int.__rshift__, map(id, objects), repeat(2))
    deque(map(words.__setitem__, numbers, repeat(IMMORTAL)), maxlen=0)
