"""What waits for the garbage collector."""

from __future__ import annotations

import gc
from collections import Counter

__all__ = ["garbage"]


def garbage() -> Counter[str]:
    """Collect, and count what is found of ours by its type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        types: list[type[object]] = [type(found) for found in gc.garbage]
        return Counter(kind.__qualname__ for kind in types if kind.__module__.startswith("toolcell"))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
