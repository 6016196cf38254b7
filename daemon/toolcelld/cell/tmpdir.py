"""The private temporary directories of cells that have no /tmp of their own.

There is one for each cell, below the daemon's state directory; it is made before the cell is configured, and removed
when the cell is empty. Its content was written by a tool and may have trees deeper than a path can be, or directories
that cannot be entered. `rm` and `chmod` handle those, so they are run where a plain rmdir fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import tempfile
from typing import Final

logger = logging.getLogger(__name__)

REMOVE_SECONDS_MAX: Final = 60.0
"""For one directory; after this time it is left to the next start of the daemon."""
PROGRAMS: Final = f"{os.defpath}:/run/current-system/sw/bin"
"""Where the system has `rm` and `chmod`. Not the daemon's PATH, which may begin with directories of a project."""


class TemporaryDirectories:
    """Makes and removes the directories.

    Args:
        place: The directory of all of them, which has no other content.
        tasks: Runs the removals.
    """

    def __init__(self, place: str, tasks: asyncio.TaskGroup) -> None:
        self.place = place
        self._tasks = tasks

    async def start(self) -> None:
        """Make the directory of all of them, and remove what an earlier daemon left in it."""
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        os.makedirs(self.place, mode=0o700, exist_ok=True)
        for name in os.listdir(self.place):
            remove_tree(os.path.join(self.place, name))

    def make(self) -> str:
        """Make a directory and return its path. Raises `OSError`."""
        return tempfile.mkdtemp(prefix="cell-", dir=self.place)

    def remove(self, path: str) -> None:
        """Remove a directory in the background; returns at once."""
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            self._tasks.create_task(asyncio.to_thread(remove_tree, path))


def remove_tree(path: str) -> None:
    """Remove a directory that a cell has written, however deep it is and whatever its modes are. Follows no link in it. Blocks."""
    for command in (["rm"], ["chmod", "-R", "u+rwX"], ["rm"]):
        options = ["-rf"] if command == ["rm"] else []
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):  # also where no process can be started
            subprocess.run(
                [*command, *options, "--", path],
                env={"PATH": PROGRAMS},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=REMOVE_SECONDS_MAX,
                check=False,
            )
        if not os.path.lexists(path):
            return
    logger.warning("%s could not be removed completely; it is tried again later.", path)
