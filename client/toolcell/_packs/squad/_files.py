"""Files below `.squad`: reached without following links, written whole, and one writer at a time.

Each directory on the way is opened in the one before, so that neither a link nor a name with `..` leads out of
`.squad`. A file is written beside its place and renamed, so that a reader has the old text or the new one. Writers of
one directory take turns by its lock, in all processes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolcell import ToolError

FILE_BYTES_MAX = 1024 * 1024
SLUG_CHARACTERS_MAX = 50
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,63}")
SAME_TITLE_MAX = 1000
"""Files of one agent and one title; each further one has a number."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def slug(title: str) -> str:
    """Return a title as a part of a file name: lower case, and `-` for everything but letters and digits of ASCII."""
    text = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return text[:SLUG_CHARACTERS_MAX].rstrip("-") or "untitled"


def named(name: str, what: str) -> str:
    """Return a name that is a single part of a path. Raises `ToolError` for another."""
    if not NAME.fullmatch(name):
        raise ToolError(
            f"{name[:80]!r} is no name for {what}; take up to 64 letters, digits, -, _ and single dots."
        )
    return name


@contextmanager
def _directory(base: Path, parts: tuple[str, ...], *, make: bool) -> Generator[int]:
    """Open a directory below the base. Raises `FileNotFoundError` where it is not to be made, and `ToolError`."""
    here = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=here)
            above, here = here, os.open(part, _DIRECTORY, dir_fd=here)
            os.close(above)
        yield here
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise ToolError(
                f"{'/'.join(parts)} is a link or no directory; links are not followed."
            ) from error
        raise
    finally:
        os.close(here)


def _content(directory: int, name: str) -> str:
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ToolError(f"{name} is a link or no file; links are not followed.") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ToolError(f"{name} is no regular file.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(content) > FILE_BYTES_MAX:
        raise ToolError(f"{name} has more than {FILE_BYTES_MAX} bytes.")
    return content.decode(errors="replace")


def _put(directory: int, name: str, text: str, place: Callable[[str], None]) -> None:
    """Write a text beside its place, then have `place` move it there."""
    content = text.encode(errors="replace")
    if len(content) > FILE_BYTES_MAX:
        raise ToolError(f"The text for {name} would have more than {FILE_BYTES_MAX} bytes.")
    beside = f".{name}.{secrets.token_hex(8)}"
    descriptor = os.open(beside, _NEW, 0o666, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        place(beside)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=directory)


def read(base: Path, *parts: str) -> str | None:
    """Return the text of a file below the base; None if there is none. Raises `ToolError`."""
    try:
        with _directory(base, parts[:-1], make=False) as directory:
            return _content(directory, parts[-1])
    except FileNotFoundError:
        return None


def names(base: Path, *parts: str) -> list[str] | None:
    """Return the names of the directories below a directory, sorted; None if there is no such directory."""
    try:
        with _directory(base, parts, make=False) as directory, os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return None


def changed(base: Path, *parts: str, change: Callable[[str | None], str]) -> None:
    """Replace the text of a file by what `change` makes of it; None stands for a file that is not there."""
    *above, name = parts
    with _directory(base, tuple(above), make=True) as directory:
        fcntl.flock(directory, fcntl.LOCK_EX)  # until the descriptor is closed
        try:
            before = _content(directory, name)
        except FileNotFoundError:
            before = None
        _put(
            directory,
            name,
            change(before),
            lambda beside: os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory),
        )


def written(base: Path, *parts: str, text: str) -> None:
    """Write a file whole, in place of one that is there."""
    changed(base, *parts, change=lambda _: text)


def created(base: Path, *parts: str, text: str) -> str:
    """Write a file that was not there, and return its name: with a number where the name is taken."""
    *above, name = parts
    stem, dot, suffix = name.rpartition(".")
    chosen = ""

    def place(beside: str) -> None:
        nonlocal chosen
        for number in range(1, SAME_TITLE_MAX + 1):
            chosen = name if number == 1 else f"{stem}-{number}{dot}{suffix}"
            with suppress(FileExistsError):
                os.link(beside, chosen, src_dir_fd=directory, dst_dir_fd=directory)
                return
        raise ToolError(
            f"There are {SAME_TITLE_MAX} files with the name {name} and a number; take another title."
        )

    with _directory(base, tuple(above), make=True) as directory:
        _put(directory, name, text, place)
    return chosen
