"""A daemon for a slow machine: as `python -m toolcelld`, but it waits longer before it gives its own processes up.

Users have no such setting, because a cell that is not forked within 5 s is a fault where they are.
In an emulated processor (see tests/pace.py) it is not.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import ModuleType
from typing import Any, Final

from tests.pace import SLOWNESS

from toolcelld import __main__, blanks, cells, runtimes, workers
from toolcelld.blanks import Blanks
from toolcelld.description import Description

BOUNDS: Final[tuple[tuple[ModuleType, str], ...]] = (
    (blanks, "HELLO_SECONDS_MAX"),
    (cells, "END_SECONDS_MAX"),
    (cells, "SPAWN_SECONDS_MAX"),
    (runtimes, "READY_SECONDS_MAX"),
    (workers, "SURVEY_SECONDS_MAX"),
)

start = workers.Worker.start


def start_patiently(
    self: workers.Worker, blanks: Blanks, *, load_seconds: float, describe: bool = False
) -> Coroutine[Any, Any, Description]:
    """As `Worker.start`, with more time to load."""
    return start(self, blanks, load_seconds=load_seconds * SLOWNESS, describe=describe)


if __name__ == "__main__":
    workers.Worker.start = start_patiently  # type: ignore[method-assign]  # a coroutine as well
    for module, name in BOUNDS:
        setattr(module, name, getattr(module, name) * SLOWNESS)
    __main__.main()
