"""The token that hosts show over HTTP: told by name, never by value, or made and kept.

A value on the command line would be readable in the list of processes.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping

TOKEN_BYTES = 32
FILE_BYTES_MAX = 4096
TOKEN = re.compile(r"[!-~]{16,1024}")  # valid in a header, and too long to guess


class BadToken(Exception):
    """There is no token to be had there; the message says why."""


def token_in_environment(name: str, environment: Mapping[str, str]) -> str:
    """The token in a variable. Raises BadToken."""
    if name not in environment:
        raise BadToken(f"There is no environment variable {name}.")
    return _checked(environment[name], f"The environment variable {name}")


def token_in_file(path: str) -> tuple[str, bool]:
    """The token in a file, and whether the file was made for it. Raises BadToken."""
    try:
        try:
            return _read(path), False
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            try:
                return _make(path), True
            except FileExistsError:  # another process was quicker
                return _read(path), False
    except OSError as error:
        reason = "it is a link" if os.path.islink(path) else error.strerror
        raise BadToken(f"{path} cannot be used: {reason}.") from error


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise BadToken(f"{path} is no file.")
        if found.st_uid != os.geteuid():
            raise BadToken(f"{path} belongs to user {found.st_uid}, not to you.")
        if found.st_mode & 0o077:
            raise BadToken(f"{path} is open to others (mode {found.st_mode & 0o777:o}): chmod 600 {path}")
        return _checked(os.read(descriptor, FILE_BYTES_MAX).decode(errors="replace"), path)
    finally:
        os.close(descriptor)


def _make(path: str) -> str:
    token = secrets.token_urlsafe(TOKEN_BYTES)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)  # whatever the umask takes away
        file.write(token + "\n")
    return token


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if not TOKEN.fullmatch(token):
        raise BadToken(f"{where} has no token: 16 or more visible characters without blanks.")
    return token
