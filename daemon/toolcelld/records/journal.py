"""The calls that were accepted since the last batch, in files that a killed daemon leaves behind.

A batch is committed some time after its calls were accepted, and a daemon that is killed meanwhile has told its clients of
them. So a call that is accepted is put into the queue of the records and then written as a line to a file, which costs one
write to memory of the kernel. There are two files. When a batch begins, the one that was not in use is emptied, since its
calls were in the batch before, and takes the lines from then on. Lines of calls that are recorded may stay in a file, as
they were written while their batch began: who reads it knows them by their session and id.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable
from typing import Any, Final

from toolcelld.records.rows import Row, text_of
from toolcelld.records.tables import OPEN_COLUMNS

BYTES_MAX: Final = 16 * 2**20
"""What is read of a file: all that can wait for the records, at some hundred bytes each."""


class Journal:
    """The two files of a daemon that runs. Raises `OSError`.

    Args:
        path: That of the records.
        run: The number of the run.
    """

    def __init__(self, path: str, run: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._files: list[int] = []
        try:
            for name in _names(path, run):
                self._files.append(os.open(name, flags, 0o600))
        except OSError:
            self.close()  # each batch tries again
            raise

    def turn(self) -> int:
        """Return the file that takes lines from now on, as a batch begins."""
        self._files.reverse()
        with contextlib.suppress(OSError):  # its lines are recorded, which their reader sees
            os.ftruncate(self._files[0], 0)
        return self._files[0]

    def close(self) -> None:
        """Close both, and leave them to `sweep`."""
        for file in self._files:
            os.close(file)


def rows_left(path: str, run: int) -> list[Row]:
    """Return the rows that a run has left, for `OPEN_COLUMNS`. What is no line of ours is left out."""
    found: list[Row] = []
    for name in _names(path, run):
        with contextlib.suppress(OSError), open(name, "rb", opener=_open_file) as file:
            found += [row for line in file.read(BYTES_MAX).splitlines() if (row := _row(run, line))]
    return found


def _open_file(path: str, flags: int) -> int:
    """Open what is a file, and waits for nobody."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _row(run: int, line: bytes) -> Row | None:
    try:
        found: Any = json.loads(line)
        *texts, accepted = found
        time = float(accepted)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    is_ours = type(found) is list and all(isinstance(text, str) for text in texts) and math.isfinite(time)
    row = (run, *map(text_of, texts), time) if is_ours else ()
    return row if len(row) == len(OPEN_COLUMNS) else None


def sweep(path: str, runs: Iterable[int]) -> None:
    """Remove the files of all runs but these."""
    directory, base = os.path.split(path)
    kept = {os.path.basename(name) for run in runs for name in _names(path, run)}
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(f"{base}.accepted-") and name not in kept:
                os.unlink(os.path.join(directory, name))


def _names(path: str, run: int) -> list[str]:
    return [f"{path}.accepted-{run}-{number}" for number in (1, 2)]
