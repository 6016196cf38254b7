"""A daemon for a slow machine: as `python -m toolcelld`, but it waits longer before it gives its own processes up.

Users have no such setting, because a cell that is not forked within 5 s is a fault where they are.
In an emulated processor (see tests/pace.py) it is not.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from tests.pace import SLOWNESS

from toolcelld import __main__, blanks, cells, runtimes, workers

BOUNDS: Final[tuple[tuple[ModuleType, str], ...]] = (
    (blanks, "HELLO_SECONDS_MAX"),
    (cells, "END_SECONDS_MAX"),
    (cells, "SPAWN_SECONDS_MAX"),
    (runtimes, "READY_SECONDS_MAX"),
    (workers, "LOAD_SECONDS_MAX"),
    (workers, "SURVEY_SECONDS_MAX"),
)

if __name__ == "__main__":
    for module, name in BOUNDS:
        setattr(module, name, getattr(module, name) * SLOWNESS)
    __main__.main()
