"""What the guard does for a caller: looks where a name leads, and creates or opens it there.

A path is followed to its last component but one and held as a descriptor; what is done is done to a name in that
directory, which is never followed as a link unless its target was looked at in the same way. The directory's own path is
looked at too, so nothing appears below a protected name either.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NoReturn

from toolcell._printable import printable
from toolcelld import linux
from toolcelld.files.paths import is_below_any
from toolcelld.sandbox.guard.names import Protected
from toolcelld.sandbox.guard.questions import Listener, Question
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

__all__ = ["Operations"]

LINKS_MAX: Final = 40  # as the kernel follows
MODE_BITS: Final = 0o7777
INT_BITS: Final = 32
HERE: Final = -100  # AT_FDCWD
EMPTY_PATH: Final = 0x1000
FOLLOW: Final = 0x400
RENAME_FLAGS: Final = 0b11  # not replacing, exchanging; a whiteout takes a capability
RENAME_EXCHANGE: Final = 0b10
STDERR: Final = 2
TOLD_MAX: Final = 20
"""Refused places that a cell's stderr names, each once."""
STATUS_BYTES_MAX: Final = 512
UMASK: Final = b"Umask:\t"
OWN: Final = (b"/proc/self/", b"/proc/thread-self/", b"/dev/fd/")
"""Beginnings of paths that mean the caller's descriptors."""


class NoReader(Exception):
    """A pipe that is to be written has no reader yet."""


class Elsewhere(Exception):
    """It does not lie in the project."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a directory that is held."""

    directory: int
    path: str
    """Absolute, as the guard sees it."""

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


_libc: Final = ctypes.CDLL(None, use_errno=True)


class Operations:
    """The operations of one cell.

    Args:
        listener: Where questions come from.
        places: Where creating and writing were taken from the tool; absolute, without links.
        protected: What is refused.
        executions: How many programs may still be started, where the filter asks about them.
    """

    def __init__(
        self, listener: Listener, places: Sequence[str], protected: Protected, executions: int = 0
    ) -> None:
        self._listener = listener
        self._places = places
        self._protected = protected
        self._executions = executions
        self._told: set[str] = set()
        self._waiting: list[Question] = []  # for the reader of a pipe
        machine = os.uname().machine
        by_name: Mapping[str, Callable[[Question], None]] = {
            "creat": self._creat,
            "execve": self._execute,
            "execveat": self._execute,
            "link": lambda asked: self._link(asked, HERE, asked.arguments[0], HERE, asked.arguments[1], 0),
            "linkat": lambda asked: self._link(asked, *asked.arguments[:5]),
            "mkdir": lambda asked: self._mkdir(asked, HERE, *asked.arguments[:2]),
            "mkdirat": lambda asked: self._mkdir(asked, *asked.arguments[:3]),
            "mknod": lambda asked: self._mknod(asked, HERE, *asked.arguments[:3]),
            "mknodat": lambda asked: self._mknod(asked, *asked.arguments[:4]),
            "open": lambda asked: self._open(asked, HERE, *asked.arguments[:3]),
            "openat": lambda asked: self._open(asked, *asked.arguments[:4]),
            "rename": lambda asked: self._rename(
                asked, HERE, asked.arguments[0], HERE, asked.arguments[1], 0
            ),
            "renameat": lambda asked: self._rename(asked, *asked.arguments[:4]),
            "renameat2": lambda asked: self._rename(asked, *asked.arguments[:5]),
            "symlink": lambda asked: self._symlink(asked, asked.arguments[0], HERE, asked.arguments[1]),
            "symlinkat": lambda asked: self._symlink(asked, *asked.arguments[:3]),
            "truncate": lambda asked: self._truncate(asked, *asked.arguments[:2]),
        }
        numbers = NUMBERS[machine]
        self._by_number = {numbers[name]: do for name, do in by_name.items() if name in numbers}
        self._rename_number = numbers["renameat2"]

    def answer(self, asked: Question) -> None:
        """Do what is asked, or say why not."""
        try:
            self._by_number[asked.number](asked)
        except Elsewhere:
            self._listener.go_on(asked)
        except NoReader:
            self._waiting.append(asked)
        except OSError as error:
            self._listener.failed(asked, error.errno or errno.EIO)
        except (ValueError, OverflowError):  # an argument that no call of Python takes
            self._listener.failed(asked, errno.EINVAL)

    @property
    def is_waited_for(self) -> bool:
        """Whether a caller waits for the reader of a pipe."""
        return bool(self._waiting)

    def try_again(self, *, interrupted: bool) -> None:
        """Open the pipes that had no reader; interrupted, their callers read that a signal came instead."""
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            if interrupted:
                self._listener.failed(asked, errno.EINTR)
            elif self._listener.still_waits(asked):
                self.answer(asked)

    # Where a name leads

    @contextmanager
    def _base(self, asked: Question, directory: int, path: bytes) -> Generator[int]:
        """Hold the directory that a path of the caller begins at."""
        number = _signed(directory)
        if path.startswith(b"/"):
            place = "/"
        elif number == HERE:
            place = f"/proc/{asked.thread}/cwd"
        else:
            place = f"/proc/{asked.thread}/fd/{number}"
        try:
            base = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
        try:
            yield base
        finally:
            os.close(base)

    @contextmanager
    def _entry(self, asked: Question, directory: int, path: bytes) -> Generator[Entry]:
        """Hold the directory of a path's last component. Raises `Elsewhere`, and `OSError`."""
        if not path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        above, _, name = path.rstrip(b"/").rpartition(b"/")
        if name in (b"", b".", b".."):  # a directory that exists
            raise Elsewhere
        if path.startswith(b"/"):
            above = b"/" + above
        with self._base(asked, directory, path) as base, self._directory(base, above) as (held, at):
            yield Entry(held, os.path.join(at, os.fsdecode(name)))

    @contextmanager
    def _directory(self, base: int, above: bytes) -> Generator[tuple[int, str]]:
        """Hold a directory, with its path. Raises `Elsewhere`, and `OSError`."""
        try:
            held = linux.openat2(
                base,
                os.fsdecode(above or b"."),
                os.O_PATH | os.O_DIRECTORY,
                resolve=linux.RESOLVE_NO_MAGICLINKS,
            )
        except (
            OSError
        ):  # it is not there, or means something else to the caller, as in /proc: the caller has the error
            raise Elsewhere from None
        try:
            yield held, self._below(os.readlink(f"/proc/self/fd/{held}"))
        finally:
            os.close(held)

    def _below(self, path: str) -> str:
        """Return the path of a directory that lies in one of the places."""
        if not is_below_any(path, self._places):
            raise Elsewhere
        return path

    def _check(self, path: str) -> None:
        if place := self._protected.place(path):
            self._refuse(place)

    def _refuse(self, place: str) -> NoReturn:
        # What is there already is no news: `git status` tries to write its index.
        if place not in self._told and len(self._told) < TOLD_MAX and not os.path.lexists(place):
            self._told.add(place)
            _tell(
                f"toolcell: {printable(place)} was not made: programs outside of the sandbox would use it. A profile's writable allows it."
            )
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    @contextmanager
    def _new(self, asked: Question, directory: int, address: int) -> Generator[Entry]:
        """Hold where a caller may make an entry."""
        with self._entry(asked, directory, self._listener.text(asked, address)) as entry:
            self._check(entry.path)
            yield entry

    # What is done

    def _mkdir(self, asked: Question, directory: int, address: int, mode: int) -> None:
        with self._new(asked, directory, address) as entry:
            os.umask(_umask_of(asked.thread))
            os.mkdir(entry.name, mode & MODE_BITS, dir_fd=entry.directory)
        self._listener.done(asked)

    def _mknod(self, asked: Question, directory: int, address: int, mode: int, device: int) -> None:
        with self._new(asked, directory, address) as entry:
            os.umask(_umask_of(asked.thread))
            os.mknod(entry.name, mode & 0xFFFF, device & 0xFFFFFFFF, dir_fd=entry.directory)
        self._listener.done(asked)

    def _symlink(self, asked: Question, target: int, directory: int, address: int) -> None:
        with self._new(asked, directory, address) as entry:
            os.symlink(self._listener.text(asked, target), os.fsencode(entry.name), dir_fd=entry.directory)
        self._listener.done(asked)

    def _link(
        self, asked: Question, source_directory: int, source: int, directory: int, address: int, flags: int
    ) -> None:
        with self._new(asked, directory, address) as entry:
            old = self._listener.text(asked, source)
            if flags & EMPTY_PATH and not old:
                with self._taken(asked, _signed(source_directory)) as taken:
                    _link_descriptor(taken, entry)
            elif flags & FOLLOW and (number := _own_descriptor(old)) is not None:
                with self._taken(asked, number) as taken:
                    _link_descriptor(taken, entry)
            else:
                with self._entry(asked, source_directory, old) as before:
                    self._check(before.path)  # another name of a protected file would be written
                    os.link(
                        before.name, entry.name, src_dir_fd=before.directory, dst_dir_fd=entry.directory,
                        follow_symlinks=False,
                    )  # fmt: skip
        self._listener.done(asked)

    def _rename(
        self, asked: Question, old_directory: int, old: int, new_directory: int, new: int, flags: int = 0
    ) -> None:
        if flags & ~RENAME_FLAGS:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        old_path, new_path = self._listener.text(asked, old), self._listener.text(asked, new)
        with (
            self._either(asked, old_directory, old_path) as before,
            self._either(asked, new_directory, new_path) as after,
        ):
            if before[1] is None and after[1] is None:
                raise Elsewhere
            for one, other in ((before, after), (after, before)):
                if one[1] is not None:
                    self._check(one[1])
                    self._check_contents(one[1], other)
                    if self._protected.holds(one[1]):
                        self._refuse(one[1])
                    if not self._protected.frees(one[1]) and (
                        other[1] is None or self._protected.frees(other[1])
                    ):
                        _refuse_directory(other)
            renamed = _libc.syscall(
                ctypes.c_long(self._rename_number),
                before[0],
                before[2],
                after[0],
                after[2],
                ctypes.c_uint(flags),
            )
            if renamed < 0:
                raise OSError(ctypes.get_errno(), "")
        self._listener.done(asked)

    @contextmanager
    def _either(
        self, asked: Question, directory: int, path: bytes
    ) -> Generator[tuple[int, str | None, bytes]]:
        """Hold an entry that may lie elsewhere: its directory, its path in one of the places, its name."""
        above, _, name = path.rstrip(b"/").rpartition(b"/")
        if name in (b"", b".", b".."):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        if path.startswith(b"/"):
            above = b"/" + above
        with self._base(asked, directory, path) as base:
            held = linux.openat2(
                base,
                os.fsdecode(above or b"."),
                os.O_PATH | os.O_DIRECTORY,
                resolve=linux.RESOLVE_NO_MAGICLINKS,
            )
        try:
            at: str | None = None
            with contextlib.suppress(Elsewhere):
                at = os.path.join(self._below(os.readlink(f"/proc/self/fd/{held}")), os.fsdecode(name))
            yield held, at, name
        finally:
            os.close(held)

    def _check_contents(self, path: str, moved: tuple[int, str | None, bytes]) -> None:
        """Refuse a directory that becomes the first part of a protected name with its second part in it."""
        patterns = self._protected.below(path)
        if not patterns:
            return
        with contextlib.suppress(NotADirectoryError, FileNotFoundError):
            inside = os.open(
                moved[2], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=moved[0]
            )
            try:
                with os.scandir(inside) as entries:
                    if any(fnmatchcase(entry.name, pattern) for entry in entries for pattern in patterns):
                        self._refuse(path)
            finally:
                os.close(inside)

    def _creat(self, asked: Question) -> None:
        address, mode = asked.arguments[:2]
        self._open(asked, HERE, address, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)

    def _open(self, asked: Question, directory: int, address: int, flags: int, mode: int) -> None:
        flags &= 0xFFFFFFFF
        path = self._listener.text(asked, address)
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            with self._base(asked, directory, path) as base, self._directory(base, path) as (held, at):
                self._check(at)
                os.umask(_umask_of(asked.thread))
                made = os.open(".", flags | os.O_CLOEXEC, mode & MODE_BITS, dir_fd=held)
        else:
            with self._base(asked, directory, path) as base:
                made = self._opened(asked, base, path, flags, mode, LINKS_MAX)
        # It is closed here before the caller goes on: what is still open for writing is not executed, and keeps a pipe's
        # reader from its end.
        try:
            number = self._listener.give(asked, made, closed_on_exec=bool(flags & os.O_CLOEXEC))
        finally:
            os.close(made)
        self._listener.returned(asked, number)

    def _opened(self, asked: Question, base: int, path: bytes, flags: int, mode: int, links_left: int) -> int:
        """Open a path, following its last component by hand. Raises `Elsewhere`, and `OSError`."""
        if not path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        above, _, name = path.rstrip(b"/").rpartition(b"/")
        if name in (b"", b".", b".."):
            raise Elsewhere  # a directory, which is not written
        if path.startswith(b"/"):
            above = b"/" + above
        with self._directory(base, above) as (held, at):
            self._check(os.path.join(at, os.fsdecode(name)))
            if flags & os.O_CREAT:
                os.umask(_umask_of(asked.thread))
            wanted = os.fsdecode(path.rpartition(b"/")[2]) or os.fsdecode(name) + "/"
            try:
                return _without_waiting(wanted, flags, mode, held)
            except OSError as error:
                if error.errno != errno.ELOOP or flags & os.O_NOFOLLOW:
                    raise
            if not links_left:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink(name, dir_fd=held)
            return self._opened(asked, held, target, flags, mode, links_left - 1)

    def _truncate(self, asked: Question, address: int, length: int) -> None:
        path = self._listener.text(asked, address)
        with self._base(asked, HERE, path) as base:
            opened = self._opened(asked, base, path, os.O_WRONLY, 0, LINKS_MAX)
        try:
            os.ftruncate(opened, length)
        finally:
            os.close(opened)
        self._listener.done(asked)

    def _execute(self, asked: Question) -> None:
        if not self._executions:
            self._listener.failed(asked, errno.ENOSYS)
            return
        self._executions -= 1
        self._listener.go_on(asked)

    @contextmanager
    def _taken(self, asked: Question, number: int) -> Generator[int]:
        """Hold a copy of a descriptor of the caller."""
        process = os.pidfd_open(_process_of(asked.thread))
        try:
            taken = linux.pidfd_getfd(process, number)
        finally:
            os.close(process)
        try:
            yield taken
        finally:
            os.close(taken)


def _refuse_directory(moved: tuple[int, str | None, bytes]) -> None:
    """Refuse to move a directory from where names are free, as any may be in it; programs copy it then."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(moved[2], dir_fd=moved[0], follow_symlinks=False).st_mode):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def _tell(line: str) -> None:
    """Write a line to the stderr of the cell, unless that would wait for its reader."""
    poll = select.poll()
    poll.register(STDERR, select.POLLOUT)
    if any(events & select.POLLOUT for _, events in poll.poll(0)):
        with contextlib.suppress(OSError):
            os.write(STDERR, f"{line}\n".encode()[: select.PIPE_BUF])


def _without_waiting(name: str, flags: int, mode: int, directory: int) -> int:
    """Open a name that is no link. Raises `NoReader` where that would wait, and `OSError`."""
    try:
        opened = os.open(
            name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode & MODE_BITS, dir_fd=directory
        )
    except OSError as error:
        if error.errno != errno.ENXIO or flags & os.O_NONBLOCK:
            raise
        if not stat.S_ISFIFO(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise
        raise NoReader from None
    if not flags & os.O_NONBLOCK:
        os.set_blocking(opened, True)
    return opened


def _link_descriptor(descriptor: int, entry: Entry) -> None:
    os.link(f"/proc/self/fd/{descriptor}", entry.name, dst_dir_fd=entry.directory, follow_symlinks=True)


def _own_descriptor(path: bytes) -> int | None:
    """Return the number of the caller's descriptor that a path means."""
    if path.startswith(OWN) and (number := path.rpartition(b"/")[2]).isdigit():
        return int(number)
    return None


def _signed(number: int) -> int:
    number &= (1 << INT_BITS) - 1
    return number - (1 << INT_BITS) if number >> (INT_BITS - 1) else number


def _status(thread: int) -> bytes:
    with open(f"/proc/{thread}/status", "rb", buffering=0) as file:
        return file.read(STATUS_BYTES_MAX)


def _umask_of(thread: int) -> int:
    return int(_status(thread).partition(UMASK)[2][:4], 8)


def _process_of(thread: int) -> int:
    return int(_status(thread).partition(b"Tgid:\t")[2].split(None, 1)[0])
