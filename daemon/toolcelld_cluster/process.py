"""Which process is Placement: the one that has the lock of the state directory."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
from types import TracebackType
from typing import Final

from toolcelld.files.paths import held
from toolcelld_cluster.configuration import FileError

FILE: Final = "placement.lock"
STOP_SECONDS: Final = 30.0
_ALL: Final = struct.Struct("hhqqi4x")  # struct flock of 64 bits: type, whence, start, length, process


class StateLock:
    """The lock, for the block, in this process. Raises FileError if another one has it."""

    def __init__(self, state: str) -> None:
        self._path = os.path.join(state, FILE)
        self._file = -1

    def __enter__(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise FileError(
                "Placement runs already with this state directory; `toolcell cluster down`"
            ) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def holder(state: str) -> int:
    """Return the process that has the lock; 0 for none."""
    asked = _ALL.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with held(os.open(os.path.join(state, FILE), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)) as file:
            kind, _, _, _, process = _ALL.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except FileNotFoundError:
        return 0
    return 0 if kind == fcntl.F_UNLCK else process


def end(state: str) -> bool:
    """End Placement, and return when it has ended; False if it does not run. Raises FileError if it does not end."""
    process = holder(state)
    if process <= 0:
        return False
    try:
        known = os.pidfd_open(process)
    except ProcessLookupError:
        return False
    with held(known):
        if holder(state) != process:  # it has ended meanwhile, and the number is that of another one
            return False
        signal.pidfd_send_signal(known, signal.SIGTERM)
        if not select.select([known], [], [], STOP_SECONDS)[0]:
            raise FileError(f"Placement, process {process}, does not end within {STOP_SECONDS:.0f} s")
    return True
