"""What the guard does for a caller: looks where a name leads, and creates or opens it there.

What is done is done to a name in a directory that is held (`entries`), and the name is never followed as a link unless its
target was looked at in the same way. The directory's own path is looked at too, so nothing appears below a protected name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

from toolcell._printable import printable
from toolcelld import linux
from toolcelld.sandbox.guard.callers import HERE, base, descriptor_of, own_descriptor, umask_of
from toolcelld.sandbox.guard.entries import Elsewhere, Entry, beginnings, directory, hold, real_path
from toolcelld.sandbox.guard.names import Protected
from toolcelld.sandbox.guard.questions import GuardQuestion, Listener
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

LINKS_MAX: Final = 40  # as the kernel follows
MODE_BITS: Final = 0o7777
KIND_BITS: Final = 0xFFFF  # with the kind of the file
INT_MASK: Final = 0xFFFFFFFF
EMPTY_PATH: Final = 0x1000
FOLLOW: Final = 0x400
RENAME_FLAGS: Final = 1 | linux.RENAME_EXCHANGE  # not replacing, exchanging; a whiteout takes a capability
WITHOUT_MAKING: Final = os.O_ACCMODE | os.O_EXCL | os.O_DIRECTORY | os.O_PATH
"""With one of the two ways to write alone, a file that is there opens in the same way without `O_CREAT`."""
STDERR: Final = 2
TOLD_MAX: Final = 20
"""Refused places that a cell's stderr names, each once."""
PASSED_MAX: Final = 64
"""Paths whose names were looked at, as programs open a few files again and again; of 4 KiB at most."""


class NoReader(Exception):
    """A pipe that is to be written has no reader yet."""


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
        self._served = beginnings(places)
        self._protected = protected
        self._executions = executions
        self._told: set[str] = set()
        self._passed: set[str] = set()  # paths that are not protected, which their text alone decides
        self._waiting: list[GuardQuestion] = []  # for the reader of a pipe
        by_name: Mapping[str, Callable[[GuardQuestion], None]] = {
            "creat": lambda asked: self._open(
                asked, HERE, asked.arguments[0], os.O_CREAT | os.O_WRONLY | os.O_TRUNC, asked.arguments[1]
            ),
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
            "rename": lambda asked: self._rename(asked, HERE, asked.arguments[0], HERE, asked.arguments[1]),
            "renameat": lambda asked: self._rename(asked, *asked.arguments[:4]),
            "renameat2": lambda asked: self._rename(asked, *asked.arguments[:5]),
            "symlink": lambda asked: self._symlink(asked, asked.arguments[0], HERE, asked.arguments[1]),
            "symlinkat": lambda asked: self._symlink(asked, *asked.arguments[:3]),
            "truncate": lambda asked: self._truncate(asked, *asked.arguments[:2]),
        }
        numbers = NUMBERS[os.uname().machine]
        self._by_number = {numbers[name]: do for name, do in by_name.items() if name in numbers}

    def answer(self, asked: GuardQuestion) -> None:
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
        """Open the pipes that had no reader; with `interrupted` these calls fail with EINTR instead."""
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            if interrupted:
                self._listener.failed(asked, errno.EINTR)
            elif self._listener.still_waits(asked):
                self.answer(asked)

    # What is refused

    def _check(self, path: str) -> None:
        if path in self._passed:
            return
        if place := self._protected.place(path):
            self._refuse(place)
        if len(self._passed) == PASSED_MAX:
            self._passed.clear()
        self._passed.add(path)

    def _check_moved(self, entry: Entry, other: Entry) -> None:
        """Check that an entry may be moved away, and another one be moved there.

        What is moved is not looked into: until it is moved another thread can exchange it where the guard does not serve, and
        another cell's guard anywhere. Programs take EXDEV for another file system, and copy name by name.
        """
        self._check(entry.path)
        if self._protected.holds(entry.path):
            self._refuse(entry.path)
        free = not other.served or self._protected.frees(other.path)
        if free != self._protected.frees(entry.path):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    def _refuse(self, place: str) -> NoReturn:
        # What is there already is no news: `git status` tries to write its index.
        if place not in self._told and len(self._told) < TOLD_MAX and not os.path.lexists(place):
            self._told.add(place)
            _tell(
                f"toolcell: {printable(place)} was not made: programs outside of the sandbox would use it."
                " A profile's writable allows it."
            )
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    # What is done

    def _held(self, asked: GuardQuestion, at: int, path: bytes) -> Entry:
        with base(asked.thread, at, path) as start:
            return hold(start, path, self._served)

    @contextmanager
    def _new(self, asked: GuardQuestion, at: int, address: int) -> Generator[Entry]:
        """Hold where a caller may make an entry."""
        with self._held(asked, at, self._listener.text(asked, address)) as entry:
            if not entry.served:
                raise Elsewhere
            self._check(entry.path)
            yield entry

    def _mkdir(self, asked: GuardQuestion, at: int, address: int, mode: int) -> None:
        with self._new(asked, at, address) as entry:
            os.umask(umask_of(asked.thread))
            os.mkdir(entry.name, mode & MODE_BITS, dir_fd=entry.directory)
        self._listener.returned(asked)

    def _mknod(self, asked: GuardQuestion, at: int, address: int, mode: int, device: int) -> None:
        with self._new(asked, at, address) as entry:
            os.umask(umask_of(asked.thread))
            os.mknod(entry.name, mode & KIND_BITS, device & INT_MASK, dir_fd=entry.directory)
        self._listener.returned(asked)

    def _symlink(self, asked: GuardQuestion, target: int, at: int, address: int) -> None:
        with self._new(asked, at, address) as entry:
            os.symlink(self._listener.text(asked, target), entry.name, dir_fd=entry.directory)
        self._listener.returned(asked)

    def _link(
        self, asked: GuardQuestion, source_at: int, source: int, at: int, address: int, flags: int
    ) -> None:
        """Give a file another name; not a protected one, which could be written by that name."""
        with self._new(asked, at, address) as entry:
            old = self._listener.text(asked, source)
            if (flags & EMPTY_PATH and not old) or (flags & FOLLOW and own_descriptor(old) is not None):
                number = own_descriptor(old) if old else source_at
                assert number is not None
                with descriptor_of(asked.thread, number) as copied:
                    self._link_descriptor(copied, entry)
            elif flags & FOLLOW:
                with base(asked.thread, source_at, old) as start:
                    followed = linux.openat2(
                        start, os.fsdecode(old), os.O_PATH, resolve=linux.RESOLVE_NO_MAGICLINKS
                    )
                try:
                    self._link_descriptor(followed, entry)
                finally:
                    os.close(followed)
            else:
                with self._held(asked, source_at, old) as before:
                    self._check(before.path)
                    os.link(
                        before.name, entry.name, src_dir_fd=before.directory, dst_dir_fd=entry.directory,
                        follow_symlinks=False,
                    )  # fmt: skip
        self._listener.returned(asked)

    def _link_descriptor(self, descriptor: int, entry: Entry) -> None:
        self._check(real_path(descriptor))
        os.link(f"/proc/self/fd/{descriptor}", entry.name, dst_dir_fd=entry.directory, follow_symlinks=True)

    def _rename(
        self, asked: GuardQuestion, old_at: int, old: int, new_at: int, new: int, flags: int = 0
    ) -> None:
        if flags & INT_MASK & ~RENAME_FLAGS:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        with (
            self._held(asked, old_at, self._listener.text(asked, old)) as before,
            self._held(asked, new_at, self._listener.text(asked, new)) as after,
        ):
            if not (before.served or after.served):
                raise Elsewhere
            for entry, other in ((before, after), (after, before)):
                if entry.served:
                    self._check_moved(entry, other)
            arriving = (before, after) if flags & linux.RENAME_EXCHANGE else (after,)
            if any(self._protected.begins(entry.path) for entry in arriving):
                raise OSError(
                    errno.EXDEV, os.strerror(errno.EXDEV)
                )  # as above: what is in it may have a protected name
            linux.rename(before.directory, before.name, after.directory, after.name, flags)
        self._listener.returned(asked)

    def _open(self, asked: GuardQuestion, at: int, address: int, flags: int, mode: int) -> None:
        flags &= INT_MASK
        path = self._listener.text(asked, address)
        with base(asked.thread, at, path) as start:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                opened = self._open_unnamed(asked, start, path, flags, mode)
            else:
                opened = self._open_at(asked, start, path, flags, mode, LINKS_MAX)
        # It is closed here before the caller goes on: what is still open for writing is not executed, and keeps a pipe's
        # reader from its end.
        try:
            number = self._listener.give(asked, opened, closed_on_exec=bool(flags & os.O_CLOEXEC))
        finally:
            os.close(opened)
        self._listener.returned(asked, number)

    def _open_unnamed(self, asked: GuardQuestion, start: int, path: bytes, flags: int, mode: int) -> int:
        """Open a file without a name in a directory."""
        held = directory(start, path)
        try:
            at = real_path(held)
            if not f"{at}/".startswith(self._served):
                raise Elsewhere
            self._check(at)
            os.umask(umask_of(asked.thread))
            return os.open(".", flags | os.O_CLOEXEC, mode & MODE_BITS, dir_fd=held)
        finally:
            os.close(held)

    def _open_at(
        self, asked: GuardQuestion, start: int, path: bytes, flags: int, mode: int, links_left: int
    ) -> int:
        """Open a path, following its last component by hand. Raises `Elsewhere`, `NoReader` and `OSError`."""
        with hold(start, path, self._served) as entry:
            if not entry.served:
                raise Elsewhere
            self._check(entry.path)
            try:
                return _open_entry(asked, entry, flags, mode)
            except OSError as error:
                if error.errno != errno.ELOOP or flags & os.O_NOFOLLOW or not links_left:
                    raise
            target = os.readlink(entry.name.rstrip(b"/"), dir_fd=entry.directory)
            return self._open_at(asked, entry.directory, target, flags, mode, links_left - 1)

    def _truncate(self, asked: GuardQuestion, address: int, length: int) -> None:
        path = self._listener.text(asked, address)
        try:
            with base(asked.thread, HERE, path) as start:
                opened = self._open_at(asked, start, path, os.O_WRONLY | os.O_NONBLOCK, 0, LINKS_MAX)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from None  # a pipe
        try:
            os.ftruncate(opened, length)
        finally:
            os.close(opened)
        self._listener.returned(asked)

    def _execute(self, asked: GuardQuestion) -> None:
        if not self._executions:
            self._listener.failed(asked, errno.ENOSYS)
            return
        self._executions -= 1
        self._listener.go_on(asked)


def _open_entry(asked: GuardQuestion, entry: Entry, flags: int, mode: int) -> int:
    """Open a name that is no link, and make it if that is asked. Raises `NoReader` and `OSError`."""
    if flags & os.O_CREAT:
        # A file that is there needs no umask, and to read that takes longer than to open it. In a sticky directory the kernel
        # may refuse what is there because of this flag.
        there = flags & WITHOUT_MAKING in (os.O_WRONLY, os.O_RDWR)
        if there and not os.stat(entry.directory).st_mode & stat.S_ISVTX:
            try:
                return _open_without_waiting(entry, flags & ~os.O_CREAT, mode)
            except OSError:
                pass
        os.umask(umask_of(asked.thread))
    return _open_without_waiting(entry, flags, mode)


def _open_without_waiting(entry: Entry, flags: int, mode: int) -> int:
    """Open a name that is no link. Raises `NoReader` where that would wait, and `OSError`."""
    try:
        opened = os.open(
            entry.name,
            flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK,
            mode & MODE_BITS,
            dir_fd=entry.directory,
        )
    except OSError as error:
        if error.errno != errno.ENXIO or flags & os.O_NONBLOCK:
            raise
        if not stat.S_ISFIFO(os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False).st_mode):
            raise
        raise NoReader from None
    if not flags & os.O_NONBLOCK:
        os.set_blocking(opened, True)
    return opened


def _tell(line: str) -> None:
    """Write a line to the stderr of the cell, unless that would wait for its reader."""
    poll = select.poll()
    poll.register(STDERR, select.POLLOUT)
    if any(events & select.POLLOUT for _, events in poll.poll(0)):
        with contextlib.suppress(OSError):
            os.write(STDERR, f"{line}\n".encode()[: select.PIPE_BUF])
