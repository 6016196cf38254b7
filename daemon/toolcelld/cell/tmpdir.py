"""The private temporary directories of cells that have no /tmp of their own.

One for each cell below the daemon's state, made before the cell is told of it and removed when the
cell is empty. What is in one was put there by a tool: trees deeper than a path is long, directories
that cannot be entered. `rm` and `chmod` know how to deal with those, so they do it, and only
where a plain rmdir does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import tempfile
from typing import Final

__all__ = ["TemporaryDirectories"]

logger = logging.getLogger(__name__)

REMOVE_SECONDS_MAX: Final = 60.0
"""For one directory; a disk that needs longer is left to the next start."""


class TemporaryDirectories:
    """The place of all of them. Nothing else is kept below it."""

    def __init__(self, place: str, tasks: asyncio.TaskGroup) -> None:
        self.place = place
        self._tasks = tasks

    async def start(self) -> None:
        """Have the place, and nothing in it that an earlier daemon left."""
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        os.makedirs(self.place, mode=0o700, exist_ok=True)
        for name in os.listdir(self.place):
            _remove(os.path.join(self.place, name))

    def make(self) -> str:
        """A new directory. Raises `OSError`."""
        return tempfile.mkdtemp(prefix="cell-", dir=self.place)

    def remove(self, path: str) -> None:
        """Have it gone soon; returns at once."""
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            self._tasks.create_task(asyncio.to_thread(_remove, path))


def _remove(path: str) -> None:
    for command in (["rm"], ["chmod", "-R", "u+rwX"], ["rm"]):
        options = ["-rf"] if command == ["rm"] else []
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*command, *options, "--", path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=REMOVE_SECONDS_MAX,
                check=False,
            )
        if not os.path.lexists(path):
            return
    logger.warning("%s could not be removed whole; the next start tries again.", path)
