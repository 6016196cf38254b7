"""Names the limit of the cell that caused an exception."""

from __future__ import annotations

import dis
import errno
import os
import threading
from typing import Final

from toolcelld.protocol.messages import RaisedLimit
from toolcelld.sandbox.setup import CellSetup

_KEYS: Final[dict[int, RaisedLimit]] = {errno.EMFILE: "open_files", errno.EFBIG: "file_size"}
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # a file system of its own in a strict cell


def limit_behind(error: BaseException, setup: CellSetup) -> RaisedLimit | None:
    """Return the key of the limit that caused an exception; None where no limit did."""
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return "processes"  # the exception does not have the kernel's EAGAIN
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if error.errno == errno.ENOSPC:
        return "disk" if _was_own_disk_full(error, setup) else None
    if error.errno == errno.EAGAIN:  # of a fork, or of a descriptor that would block
        return "processes" if _is_thread_refused() else None
    return _KEYS.get(error.errno)


def _was_own_disk_full(error: OSError, setup: CellSetup) -> bool:
    """Return whether the temporary directory was full, which only in a strict cell is a file system of its own.

    What filled it may be gone: a `with NamedTemporaryFile()` deletes its file before the exception arrives here. Then
    the cause is found by exclusion: no other place that the tool may write is full, and the kernel refused a write and
    not, for example, a watch of a directory, for which libraries raise ENOSPC themselves.
    """
    if setup.policy.enclosure != "strict":
        return False
    if _is_full(setup.tmpdir):
        return True
    return not _is_raised_by_code(error) and not any(map(_is_full, (*setup.policy.writable, SHARED_MEMORY)))


def _is_full(place: str) -> bool:
    try:
        left = os.statvfs(place)
    except OSError:
        return False
    return not left.f_bavail or (bool(left.f_files) and not left.f_favail)  # btrfs counts no files


def _is_raised_by_code(error: OSError) -> bool:
    """Return whether a `raise` statement has raised an exception, and not a function in C."""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    if entry is None or entry.tb_lasti < 0:
        return True
    return dis.opname[entry.tb_frame.f_code.co_code[entry.tb_lasti]] == "RAISE_VARARGS"


def _is_thread_refused() -> bool:
    """Return whether the kernel refuses one more thread, as it refuses one more process."""
    try:
        threading.Thread(target=int).start()  # returns at once
    except RuntimeError:
        return True
    return False
