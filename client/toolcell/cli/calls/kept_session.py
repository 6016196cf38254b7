"""Sessions that are kept between commands: `toolcell call --session NAME`.

The daemon keeps a session without a client for its linger. Its resume token is stored beside the socket, where only
the user and no tool can read it, under the name and the directory. The file is locked while a command uses the session,
because a second stream would take it away from the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.client._grpc.access import check_directory

KEPT_SECONDS: Final = 1800.0
"""A session holds processes; a pause in trying a tool is shorter than this."""
DIRECTORY: Final = "sessions"
TOKEN_BYTES_MAX: Final = 1024

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class KeptSession:
    """The stored resume token of a session; None for a new one."""

    def __init__(self, name: str, path: str, descriptor: int) -> None:
        self._name = name
        self._path = path
        self._descriptor = descriptor
        found = os.pread(descriptor, TOKEN_BYTES_MAX, 0).decode(errors="replace").strip()
        self.token = found if _TOKEN.fullmatch(found) else None

    def store(self, token: str) -> bool:
        """Store the token that the daemon gave; return whether it is still that session. Raises Failure."""
        resumed = self.token is not None and self.token.rpartition(".")[0] == token.rpartition(".")[0]
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, token.encode(), 0)
        except OSError as error:
            raise _not_kept(self._name, self._path, error) from error
        return resumed


def check_name(name: str) -> None:
    """Raise Failure for what cannot be the name of a session."""
    if not _NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} cannot be the name of a session.",
            "Take up to 64 letters, digits, - . and _, beginning with a letter or a digit.",
        )


@contextmanager
def keep(socket: str, name: str) -> Generator[KeptSession]:
    """The session of a name in the current directory, for one command at a time.

    Raises:
        Failure: Another command uses it, or its file cannot be written.
        Unavailable: The directory of the socket is not the user's alone.
    """
    check_directory(socket)
    directory = os.path.join(os.path.dirname(socket), DIRECTORY)
    here = hashlib.blake2b(os.fsencode(os.path.realpath(os.getcwd())), digest_size=8).hexdigest()
    path = os.path.join(directory, f"{name}-{here}")
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        descriptor = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
        )
    except OSError as error:
        raise _not_kept(name, path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kept = KeptSession(name, path, descriptor)
        except BlockingIOError as error:
            raise Failure(
                Exit.REFUSED,
                "session_in_use",
                f"Another command uses the session {name} now.",
                "Wait for it, or take another name: --session NAME",
            ) from error
        except OSError as error:
            raise _not_kept(name, path, error) from error
        yield kept
    finally:
        os.close(descriptor)


def _not_kept(name: str, path: str, error: OSError) -> Failure:
    text = f"The session {name} cannot be kept: {path}: {error.strerror}."
    return Failure(Exit.UNAVAILABLE, "unavailable", text)
