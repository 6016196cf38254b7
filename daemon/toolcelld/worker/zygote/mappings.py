"""The mappings of libraries in the zygote's memory, of which most are merged.

The kernel copies each mapping in a fork and frees it at an exit, which is a tenth of what both cost. Nearly all mappings of
a cell are those of libraries, five for each: what is read before the code, the code, what is read behind it, what the
loader has written and closed, and data. When the two that are only read may be executed, as in every library until linkers
began to separate them from the code in 2018, the kernel makes one mapping of the first three. What was written stays as
it is, so that nothing can be both written and executed.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
from typing import Final, NamedTuple

READ: Final = "r--p"
CODE: Final = "r-xp"
NO_FILE: Final = "0"
"""The inode of what is of no file."""


class _Mapping(NamedTuple):
    start: int
    end: int
    access: str
    offset: int  # in the file
    file: tuple[str, str]  # device and inode


def merge_mappings() -> None:
    """Merge the mappings of each library; where the kernel refuses it, they stay as they are."""
    libc = ctypes.CDLL(None)
    libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for (_, inode), mappings in itertools.groupby(_mappings(), lambda mapping: mapping.file):
        parts = list(mappings)
        access = [part.access for part in parts]
        if inode == NO_FILE or access[:2] != [READ, CODE]:
            continue
        # What can only be read, and is the last of that kind, may be what the loader has written.
        merged = parts[: 3 if access[2:4] == [READ, READ] else 2]
        if all(_continues(after, before) for before, after in itertools.pairwise(merged)):
            start, end = merged[0].start, merged[-1].end
            libc.mprotect(start, end - start, mmap.PROT_READ | mmap.PROT_EXEC)


def _continues(mapping: _Mapping, before: _Mapping) -> bool:
    """Whether a mapping begins where another one ends, in memory and in the file."""
    size = before.end - before.start
    return mapping.start == before.end and mapping.offset == before.offset + size


def _mappings() -> list[_Mapping]:
    found: list[_Mapping] = []
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            place, access, offset, device, inode, *_ = line.decode(errors="replace").split()
            start, end = place.split("-")
            found.append(_Mapping(int(start, 16), int(end, 16), access, int(offset, 16), (device, inode)))
    return found
