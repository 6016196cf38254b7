"""The free places in the zygote's memory, which are filled before the first fork.

CPython allocates an object where one of its size was freed. In a process that the zygote has forked such a place is in a
page that is shared with the zygote, and the kernel copies the page for some bytes of it: half a megabyte in each cell.
When the places are filled, the objects of a worker are next to each other, in pages of their own.

CPython keeps blocks of one size in pools of 16 KiB, whose header has the number of blocks in use, and where the next new
one is. If both say that a second pool is new, there was no other place for the block; the first can be one that is in use.
The header is verified before; where it is another one, nothing is done. Larger objects and those of libraries in C are in the heap of `malloc`, where what is free is
below its end.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from typing import Final

from toolcelld.worker.zygote.immortal import is_supported

POOL_BYTES: Final = 1 << 14
HEADER: Final = struct.Struct("=I4x24xIIII")
"""The used blocks of a pool; then its arena, its size class, the next new block and the last one (Objects/obmalloc.c)."""
WORDS: Final = ctypes.c_uint32 * (HEADER.size // 4)
BLOCK_BYTES: Final = 16
BLOCKS: Final = range(3 * BLOCK_BYTES, 512 + BLOCK_BYTES, BLOCK_BYTES)
"""The sizes that bytes can have; larger objects are not in pools."""
BYTES_HEAD: Final = bytes.__basicsize__
NEXT: Final = 10
"""Which word of four bytes the next new block is."""
USED_MAX: Final = 2
"""Used blocks of a new pool: the reading of its header can take one."""
FILLED_MAX: Final = 20_000
"""Of one size; there are some hundred."""
HEAP_BLOCK_BYTES: Final = 64 * 1024
"""For a block of this size there is no room but at the end of the heap; from 128 KiB on it would not be in it."""
HEAP_SIZES: Final = (*range(32 * 1024, 4096, -4096), *range(4096, 1024, -512), *range(1024, 0, -BLOCK_BYTES))


def fill_holes() -> Sequence[bytes]:
    """Allocate what fills the free places, as far as this interpreter is known; return it, to be kept."""
    filling: list[bytes] = []
    if not is_supported() or not all(map(_is_in_pool, BLOCKS)):
        return filling
    _fill_heap()
    for size in BLOCKS:
        new: set[int] = set()
        for _ in range(FILLED_MAX):
            block = bytes(size - BYTES_HEAD)
            pool = id(block) & -POOL_BYTES
            header = WORDS.from_address(pool)
            if header[0] <= USED_MAX and header[NEXT] <= HEADER.size + (USED_MAX + 2) * size:
                new.add(pool)
            if len(new) > 1:
                break
            filling.append(block)
    return filling


def _fill_heap() -> None:
    """Allocate what is free below the end of the heap; it is never freed."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    end: int = libc.malloc(ctypes.c_size_t(HEAP_BLOCK_BYTES)) or 0
    for size in HEAP_SIZES:
        for _ in range(FILLED_MAX):
            block: int = libc.malloc(ctypes.c_size_t(size)) or 0
            if block > end or not block:
                libc.free(ctypes.c_void_p(block))
                break
    libc.free(ctypes.c_void_p(end))


def _is_in_pool(size: int) -> bool:
    """Return whether a block of a size is in a pool whose header is as it is known."""
    block = bytes(size - BYTES_HEAD)
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        header = os.pread(memory, HEADER.size, id(block) & -POOL_BYTES)
    except OSError:  # nothing is there
        return False
    finally:
        os.close(memory)
    _, _, size_class, _, last = HEADER.unpack(header)
    return (size_class, last) == (size // BLOCK_BYTES - 1, POOL_BYTES - size)
