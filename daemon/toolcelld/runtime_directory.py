"""The runtime directory of a daemon: its lock, its tokens and the path of its socket.

The directory belongs to the user alone (0700), and so do its files (0600). The lock on `daemon.lock` is taken before
the socket is bound and held for life, because a second gRPC server would take over a live unix socket path without a
word. A stale socket or lock file is no obstacle: the kernel dropped the lock with the process that held it.
A daemon that stops leaves its socket before its lock, and its clients start the next one as soon as their streams end;
so a daemon that finds the lock held waits for the lock or for an answer on the socket.

Where systemd has passed a socket (`systemd.activation`), the server binds its own beside, as gRPC takes no other, and the two
exchange names while it serves. A daemon that was killed leaves the passed one under its other name to the next daemon.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket as sockets
import stat
import time
from typing import Final

from toolcell import _paths
from toolcelld import linux

TOKEN_BYTES: Final = 32
LOCK_SECONDS_MAX: Final = 15.0
"""For another daemon to end or to answer: a stop waits 10 s for calls (`--drain`), and a client 20 s for a start."""
LOOK_SECONDS: Final = 0.02  # flock(2) has no timeout, and a socket has no event for "is listening now"


class AccessError(Exception):
    """The runtime directory cannot be used; the message says why and what to do."""


class AlreadyRunning(Exception):
    """Another daemon holds the lock; the message says whether it answers."""


class RuntimeDirectory:
    """The runtime directory of a running daemon: its lock, its tokens, its socket's path.

    Args:
        socket: The path of the socket.
        passed: The socket that has it, if systemd has passed one. Default: none.
    """

    def __init__(self, socket: str, passed: sockets.socket | None = None) -> None:
        self.socket = socket
        self.passed = passed
        self.bound = socket if passed is None else f"{socket}.own"
        """Where the server binds."""
        self._aside = f"{socket}.passed"
        self._shown = False
        self._lock = -1
        self.agent_token = ""
        self.operator_token = ""

    def take(self) -> None:
        """Make the directory ours, take the lock, write new tokens. Raises `AccessError`, `AlreadyRunning`."""
        directory = os.path.dirname(self.socket)
        if len(os.fsencode(self.bound)) > 100:  # sun_path has 108 bytes, and gRPC adds to it
            raise AccessError(
                f"{self.socket} is too long for a unix socket; set TOOLCELL_SOCKET to a shorter path"
            )
        try:
            _make_private(directory)
            self._lock = os.open(
                _paths.lock_path(self.socket), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            self._occupy()
        except OSError as error:
            what = error.filename or directory
            raise AccessError(
                f"{what} cannot be used: {error.strerror}; set TOOLCELL_SOCKET to another place"
            ) from error

    def _occupy(self) -> None:
        """Lock, and replace what an earlier daemon left. Raises OSError, `AlreadyRunning`."""
        self._wait_for_lock()
        os.truncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())
        self._clear()
        self.agent_token = _write_token(_paths.agent_token_path(self.socket))
        self.operator_token = _write_token(_paths.operator_token_path(self.socket))

    def _clear(self) -> None:
        """Remove the sockets of an earlier daemon, as none serves: this one holds the lock."""
        if self.passed is None:
            _unlink(self.socket)
            return
        for path in (self._aside, self.bound):
            if _paths.listens(path):
                os.rename(path, self.socket)
            else:
                _unlink(path)

    def _wait_for_lock(self) -> None:
        deadline = time.monotonic() + LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                serves = self.passed is None and _paths.answers(self.socket)
                if serves or time.monotonic() >= deadline:
                    os.close(self._lock)
                    self._lock = -1
                    end = "" if serves else ", and does not answer"
                    raise AlreadyRunning(f"Another daemon serves {self.socket} already{end}.") from None
            else:
                return
            time.sleep(LOOK_SECONDS)

    def show(self) -> bool:
        """Give the server's socket its name; False where the passed one has lost it. Raises OSError."""
        self._shown = True
        here = linux.AT_FDCWD
        try:
            linux.rename(here, self.bound, here, self.socket, linux.RENAME_EXCHANGE)
        except FileNotFoundError:
            os.rename(self.bound, self.socket)
            return False
        os.rename(self.bound, self._aside)
        return True

    def withdraw(self) -> None:
        """Remove the tokens, by which clients know that a daemon runs, and what has the name of the socket."""
        _unlink(_paths.agent_token_path(self.socket))
        _unlink(_paths.operator_token_path(self.socket))
        if self.passed is None:
            _unlink(self.socket)
        elif self._shown:
            self._shown = False
            try:
                os.rename(self._aside, self.socket)
            except OSError:
                _unlink(self.socket)

    def leave(self) -> None:
        """Remove what is ours; the lock file stays, as removing it would let two hold it."""
        if self._lock == -1:
            return
        self.withdraw()
        os.close(self._lock)
        self._lock = -1


def _make_private(directory: str) -> None:
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = os.stat(directory, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        raise AccessError(
            f"{directory} is not a directory; remove it, or set TOOLCELL_SOCKET to another place"
        )
    if found.st_uid != os.geteuid():
        raise AccessError(
            f"{directory} belongs to user {found.st_uid}, not to you; set TOOLCELL_SOCKET to another place"
        )
    if found.st_mode & 0o077:
        raise AccessError(
            f"{directory} is open to others (mode {found.st_mode & 0o777:o}); chmod 700 {directory}"
        )


def _write_token(path: str) -> str:
    token = secrets.token_urlsafe(TOKEN_BYTES)
    _unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    return token


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
