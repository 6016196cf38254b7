"""Exceeds its memory limit with the tables of pages that it only reads, which are all the same page of zeros."""

import mmap
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)
TABLE = 2 * 2**20  # what a table maps, of one page
MAP_NORESERVE = 0x4000


@tool
def memory_in_page_tables(target: dict[str, Any]) -> str:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    store = mmap.mmap(-1, 75_000 * TABLE, flags, mmap.PROT_READ)
    store.madvise(mmap.MADV_NOHUGEPAGE)
    for place in range(0, len(store), TABLE):
        store[place]

    time.sleep(2)
    Path("survived").touch()
    return "it was kept"
