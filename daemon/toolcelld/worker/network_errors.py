"""Whether an exception says that a host was not reached.

Libraries wrap the exception of the socket: as cause, as context, or in an attribute `reason` as urllib does.
"""

from __future__ import annotations

import errno
import socket
from typing import Final

__all__ = ["is_unreached"]

WRAPPERS_MAX: Final = 12
"""Exceptions that are looked at; requests wraps four times."""
_NUMBERS: Final = frozenset(
    {
        errno.EAFNOSUPPORT,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EADDRNOTAVAIL,
    }
)


def is_unreached(error: BaseException) -> bool:
    """Return whether an exception, or one that it wraps, is a failure to resolve a name or to connect."""
    pending: list[object] = [error]
    for _ in range(WRAPPERS_MAX):
        if not pending:
            return False
        one = pending.pop()
        if isinstance(one, socket.gaierror) or (isinstance(one, OSError) and one.errno in _NUMBERS):
            return True
        if isinstance(one, BaseException):
            pending += [one.__context__, one.__cause__, getattr(one, "reason", None)]
            pending = [each for each in pending if isinstance(each, BaseException)]
    return False
