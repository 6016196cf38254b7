"""The one `execveat` that a cell without programs may make, into the engine of its worker.

A filter cannot read the path of a call, but it can compare the address of the path. So it lets `execveat` through with a
path at one fixed address, and refuses to map anything there. This process maps a page there before the filter is loaded,
and makes the call with the empty path in it, relative to the opened program. The call replaces the address space, so
from then on the address holds nothing, nothing can be mapped there, and every further call fails with EFAULT.

Usually the kernel chooses addresses from the top, and the last free ones for a process that fills its address space are
those at the bottom. In the older layout it chooses upwards from a third of the address space, and none below; so the
engine starts with that.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

__all__ = [
    "ADDRESS",
    "LOW_BITS",
    "MAP_FIXED",
    "MAP_FIXED_NOREPLACE",
    "MAP_GROWSDOWN",
    "MREMAP_FIXED",
    "execute",
    "prepare",
]

ADDRESS: Final = 0x20000
"""Above what the kernel lets nobody map, on a boundary of the largest pages, and below what it chooses by itself."""
LOW_BITS: Final = 0xFFFC0000
"""Set in no address below 256 KiB: a mapping over `ADDRESS` begins there."""
PAGE: Final = 0x10000
MAP_FIXED: Final = 0x10
MAP_GROWSDOWN: Final = 0x100
MAP_FIXED_NOREPLACE: Final = 0x100000
MREMAP_FIXED: Final = 2
AT_EMPTY_PATH: Final = 0x1000
ADDR_COMPAT_LAYOUT: Final = 0x200000
SAME_PERSONALITY: Final = 0xFFFFFFFF
"""A query."""
SYS_EXECVEAT: Final = {"x86_64": 322, "aarch64": 281}

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_libc.syscall.restype = ctypes.c_long


def prepare() -> bool:
    """Map the page of the path, and give the engine the older layout. Raises `OSError`.

    Returns:
        Whether it has that layout, which some containers refuse: then an engine that fills its address space reaches
        the page.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
    found = _libc.mmap(ADDRESS, PAGE, mmap.PROT_READ, flags, -1, 0)
    if found != ADDRESS:
        number = ctypes.get_errno() or errno.EEXIST
        raise OSError(number, f"mapping the path of the engine: {os.strerror(number)}")
    before = _libc.personality(ctypes.c_ulong(SAME_PERSONALITY))
    return bool(_libc.personality(ctypes.c_ulong(before | ADDR_COMPAT_LAYOUT)) != -1)


def execute(program: str, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by a program, with the call that the filter lets through; raises `OSError`.

    Args:
        program: Its absolute path.
        words: Its name and its arguments.
        environment: Its variables.
    """
    variables = [f"{name}={value}" for name, value in environment.items()]
    descriptor = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
    number = SYS_EXECVEAT[os.uname().machine]
    _libc.syscall(
        ctypes.c_long(number),
        ctypes.c_long(descriptor),
        ctypes.c_void_p(ADDRESS),
        _strings(words),
        _strings(variables),
        ctypes.c_long(AT_EMPTY_PATH),
    )
    error = ctypes.get_errno()
    os.close(descriptor)
    raise OSError(error, os.strerror(error))


def _strings(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(texts) + 1))(*map(os.fsencode, texts), None)
