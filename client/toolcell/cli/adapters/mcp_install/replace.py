"""A file of another program, read and replaced in one step.

A link in its place is not followed, because it may be planted, and not replaced, because it may be intended. On the way
to a file of a project no link is followed either, as a repository comes with those of its author.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

FILE_BYTES_MAX = 64 * 1024 * 1024  # Claude keeps its history of projects in the same file


class Unchanged(Exception):
    """The file stays as it is; the message says why."""


def change(path: str, new: Callable[[str], str | None], *, make: bool, project: str | None = None) -> bool:
    """Replace what a file says; whether there was anything to change.

    Args:
        new: The new text, from the old one; "" where there is no file. None removes the file.
        make: Whether to make the directories that are not there.
        project: The directory of the project that the file belongs to: a new one is readable as others there. Default:
            none; the file is the user's own.

    Raises:
        Unchanged: The file is none of the user's own, or was changed meanwhile.
        OSError: It cannot be read or written.
    """
    name = os.path.basename(path)
    try:
        with opened(os.path.dirname(path), make=make, project=project) as place:
            found = os.fstat(place)
            if found.st_uid != os.geteuid() or found.st_mode & 0o002:
                raise Unchanged(f"others can write into {os.path.dirname(path)}")
            text, before = _read(name, place)
            written = new(text)
            if written == text:
                return False
            if written is None:
                _check_same(name, place, before)
                os.unlink(name, dir_fd=place)
                return True
            fresh = 0o666 & ~_umask() if project is not None else 0o600
            _replace(
                name, place, written, before, stat.S_IMODE(before.st_mode) if before is not None else fresh
            )
    except FileNotFoundError:
        if make:
            raise
        return False
    return True


@contextmanager
def opened(directory: str, *, make: bool = False, project: str | None = None) -> Generator[int]:
    """Open a directory, for as long as a block lasts.

    Args:
        make: Whether to make what is not there; default: no.
        project: The directory above, below which no link is followed; default: links are followed.

    Raises:
        Unchanged: Below the project is a link, or a file.
        OSError: It cannot be opened.
    """
    if make and project is None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    here, way = project or directory, project or directory
    place = os.open(here, flags)
    try:
        for part in os.path.relpath(directory, here).split(os.sep) if project is not None else ():
            way = os.path.join(way, part)
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=place)
            try:
                below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=place)
            except NotADirectoryError as error:
                raise Unchanged(f"{way} is a link, or no directory") from error
            os.close(place)
            place = below
        yield place
    finally:
        os.close(place)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _read(name: str, place: int) -> tuple[str, os.stat_result | None]:
    """What a file says, and which it was; nothing where there is none."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, dir_fd=place)
    except FileNotFoundError:
        return "", None
    except OSError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
            raise Unchanged("it is a link, which is neither followed nor replaced") from error
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Unchanged("it is no file")
        if found.st_uid != os.geteuid():
            raise Unchanged(f"it belongs to user {found.st_uid}")
        if found.st_size > FILE_BYTES_MAX:
            raise Unchanged(f"it has {found.st_size} bytes")
        if not found.st_mode & stat.S_IWUSR:
            raise Unchanged(f"it is read-only (mode {stat.S_IMODE(found.st_mode):04o})")
        if found.st_nlink > 1:
            raise Unchanged("it has another name, a hard link, which would not get the change")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read().decode(), found
    except UnicodeDecodeError as error:
        raise Unchanged("it is not UTF-8") from error
    finally:
        os.close(descriptor)


def _replace(name: str, place: int, text: str, before: os.stat_result | None, mode: int) -> None:
    """Put a new file in the old one's place, with that mode; not if the old one has changed meanwhile.

    The new file has a name only from its last byte to its rename, so that a program that is killed leaves none behind.
    """
    beside = f".{name}.{secrets.token_hex(8)}"
    try:
        with os.fdopen(_nameless(beside, place), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            with suppress(FileExistsError):  # where it had to have its name from the beginning
                os.link(f"/proc/self/fd/{file.fileno()}", beside, dst_dir_fd=place, follow_symlinks=True)
        _check_same(name, place, before)
        os.rename(beside, name, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=place)
        raise
    os.fsync(place)


def _nameless(name: str, place: int) -> int:
    """Open a new file in a directory; under that name on file systems that have no files without one."""
    try:
        return os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=place)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    return os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=place
    )


def _check_same(name: str, place: int, before: os.stat_result | None) -> None:
    if _which(name, place) != (_mark(before) if before is not None else None):
        raise Unchanged("it was changed just now; try again")


def _which(name: str, place: int) -> tuple[int, int, int] | None:
    try:
        return _mark(os.stat(name, dir_fd=place, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _mark(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns
