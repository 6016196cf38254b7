"""Keeps the project of a directory up to date: before a call, after it, and when a worker has exited.

A mount of a cell protects what was at a name, not the name. Another process can put something else there: the user,
with an editor that saves by renaming, or a tool in a place that no mount can hold because nothing was there. So the
change times of the directories in which the project's places are were noted, one `fstat` each, and where one changed
the places are compared:

    before a call   what is there then is what the cells of this project hold; a cell that holds something else is
                    another kind of cell, and is retired
    after a call    a protected name that has appeared is moved aside, as the call may have made it
    after an exit   the same, as `atexit` functions run when a worker is asked to exit, long after its last call

Finding the project again reads what it ships, which can take a second. So a call that comes after such a change waits while
a thread does that (`catch_up`). The loop does it where something changes once more before the call starts, and where what
appears is moved aside, as the next look has to know what was there.

Nothing is moved where a guard refuses such names to the tool (`sandbox.guard`), nor after a tool without a sandbox: what
appears then stays, as does what appears while no cell works in the project.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import stat
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolcell._printable import printable
from toolcelld.calls.outcomes.moved import Moved
from toolcelld.files.looks import look
from toolcelld.files.paths import Place, open_place
from toolcelld.policy.project import Looked, Project, names_in

if TYPE_CHECKING:
    from toolcelld.pool.worker import Worker
    from toolcelld.services import Services

logger = logging.getLogger(__name__)

UNSETTLED_NS: Final = 10_000_000
"""Change times are as coarse as a tick of the kernel before Linux 6.13: a directory that changed so recently may change
again without another time."""
MOVED_MAX: Final = 100
"""Lines about moved places that wait for an outcome."""
NAMES_TRIED: Final = 100
"""Of a place that is moved aside: .envrc.moved-aside, .envrc.moved-aside-2, and so on. A random name comes after them."""


OWNER_WRITES: Final = stat.S_IWUSR | stat.S_IXUSR


class ProjectWatch:
    """The project of a directory. It holds descriptors until `close`.

    Args:
        project: As it was found when the first session was opened.
        find: Finds it again. Raises `OSError`.
        in_use: Whether a cell without a guard may be writing in the project with that root now, one worker's cell aside.
        on_change: Called with the project when it is another one than before.
    """

    def __init__(
        self,
        project: Project,
        find: Callable[[], Project],
        in_use: Callable[[str, Worker | None], bool],
        on_change: Callable[[Project], None],
    ) -> None:
        self._find = find
        self._on_change = on_change
        self._in_use = in_use
        # The mutable state: the project, whether it has to be found again, who does that in a thread, a descriptor of each
        # looked directory with its change time, and what was moved.
        self.project = project
        self.is_stale = False
        self._finding: asyncio.Task[None] | None = None
        self._directories: list[tuple[int, Looked]] = []
        self._changed_ns: list[tuple[int, int]] = []
        self._moved: list[Moved] = []
        self._open()

    def close(self) -> None:
        """Forget the project. Idempotent."""
        if self._finding is not None:
            self._finding.cancel()
        self._close()

    def _close(self) -> None:
        for descriptor, _ in self._directories:
            os.close(descriptor)
        self._directories.clear()
        self._changed_ns.clear()

    def is_current(self) -> bool:
        """Whether a call can start with the project as it was found: the same as `catch_up` returning None, in fewer steps."""
        return self._finding is None and not self.is_stale and not self.changed()

    def catch_up(self) -> asyncio.Task[None] | None:
        """Return what a call has to wait for while the project is found again; None where nothing was exchanged."""
        if self._finding is None and self._has_changed():
            self._finding = asyncio.get_running_loop().create_task(self._find_in_thread())
        return self._finding

    async def _find_in_thread(self) -> None:
        try:
            self.is_stale = False
            with contextlib.suppress(OSError):
                self._replace(await look(self.project.directory, self._find))
            self._compare()  # with what is there now
        finally:
            self._finding = None

    def before_call(self) -> Project:
        """Return the project as it is now; the same object while nothing was exchanged."""
        if self._has_changed():
            self._renew()
        return self.project

    def _renew(self) -> None:
        if self.is_stale:
            self.is_stale = False
            with contextlib.suppress(OSError):
                self._replace(self._find())

    def _has_changed(self) -> bool:
        """Whether the project has to be found again for a call."""
        if self.changed():
            self._take_in(None)
        return self.is_stale

    def before_exit(self, worker: Worker) -> None:
        """Look at the project before an idle worker is asked to exit: what has appeared is not of its making."""
        if self.changed():
            self._take_in(worker)
            self._renew()

    def _take_in(self, aside: Worker | None) -> None:
        if self._in_use(self.project.directory, aside):
            self._move_new_aside()
        self._compare()

    def after_call(self, *, repaired: bool) -> tuple[Moved, ...]:
        """Move aside what has appeared at protected names; return what was moved since the last call ended.

        Args:
            repaired: Whether the call may have made it, and its cell is one after which that is done.
        """
        if self.changed():
            if repaired or self._in_use(self.project.directory, None):
                self._move_new_aside()
                self._compare()
                self._renew()
            else:
                self._compare()
        moved = tuple(self._moved)
        self._moved.clear()
        return moved

    def after_exit(self) -> None:
        """Move aside what has appeared at protected names while a worker exited; the next outcome says it."""
        if self.changed():
            self._move_new_aside()
            self._compare()
            self._renew()
        del self._moved[:-MOVED_MAX]

    # Comparing

    def changed(self) -> bool:
        """Whether a directory has changed since the last look, or something was moved that no outcome has told yet."""
        if self._moved:
            return True
        try:
            for descriptor, before in self._changed_ns:  # twice in each warm call; a generator costs as much
                if os.fstat(descriptor).st_ctime_ns != before:
                    return True
        except OSError:  # its file system is gone
            return True
        return False

    def _compare(self) -> None:
        """Note whether one of the project's places was exchanged."""
        self._note()  # before comparing: what changes meanwhile is seen the next time
        if not self._is_as_before():
            self.is_stale = True

    def _is_as_before(self) -> bool:
        project = self.project
        return all(map(_is_there, project.places)) and all(
            names_in(descriptor, looked.names) == looked.present for descriptor, looked in self._directories
        )

    def _replace(self, project: Project) -> None:
        if project == self.project:
            return
        self._close()
        self.project = project
        self._open()
        self._on_change(project)

    def _open(self) -> None:
        for looked in self.project.looked:
            with contextlib.suppress(OSError):  # it went meanwhile, and so the directory above it has changed
                opened = open_place(looked.place)
                try:
                    readable = os.open(f"/proc/self/fd/{opened}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                finally:
                    os.close(opened)
                self._directories.append((readable, looked))
        self._note()

    def _note(self) -> None:
        """Note the change times; 0 for one that is too recent to be relied upon."""
        settled_ns = time.time_ns() - UNSETTLED_NS
        times = [(descriptor, _changed_at_ns(descriptor)) for descriptor, _ in self._directories]
        self._changed_ns = [(descriptor, at if at < settled_ns else 0) for descriptor, at in times]

    # Moving aside

    def _move_new_aside(self) -> None:
        for descriptor, looked in list(self._directories):
            for name in names_in(descriptor, looked.names):
                if name not in looked.present:
                    self._move(descriptor, looked.place.path, name)
        with contextlib.suppress(OSError):
            self._move_new_directories_aside(self._find())

    def _move_new_directories_aside(self, project: Project) -> None:
        """Move aside what counts in a directory that is new, as instructions in a `.github`, or is a link to one."""
        known = {looked.place for looked in self.project.looked}
        names = [
            (looked.place, name)
            for looked in project.looked
            if looked.place not in known
            for name in looked.present
        ]
        parents = {place.path: place for place in known}
        before = {place.path for place in self.project.protected}
        for place in project.protected:
            above, name = os.path.split(place.path)
            if place.path not in before and above in parents and os.path.islink(place.path):
                names.append((parents[above], name))
        for above_place, name in names:
            with contextlib.suppress(OSError):
                opened = open_place(above_place)
                try:
                    self._move(opened, above_place.path, name)
                finally:
                    os.close(opened)

    def _move(self, directory: int, path: str, name: str) -> None:
        try:
            aside = _move_aside(directory, name)
        except OSError as error:
            moved = Moved(os.path.join(path, name), "", error.strerror or type(error).__name__)
        else:
            moved = Moved(os.path.join(path, name), aside)
        self._moved.append(moved)
        logger.warning("%s", printable(moved.note))


class ProjectWatches:
    """The watch of each directory in use; its sessions share it, and it outlives them while workers may write there.

    Args:
        services: Their ruleset finds projects, and their pool has the workers.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        # The mutable state: the watches by directory, and the sessions of each.
        self._watches: dict[str, ProjectWatch] = {}
        self._sessions: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._watches)

    def join(self, directory: str, project: Project) -> ProjectWatch:
        """Return the watch of a directory for a session that opens, as it found the project just now."""
        self._sessions[directory] += 1
        watch = self._watches.get(directory)
        if watch is None:
            watch = self._watches[directory] = ProjectWatch(
                project,
                lambda: self._services.ruleset.find_project(directory),
                self._services.pool.is_writing,
                lambda now: self._services.pool.retire_unlike(directory, {*now.places}),
            )
        return watch

    def mark_stale(self) -> None:
        """Have every project found again before its next call, because the rules have changed."""
        for watch in list(self._watches.values()):
            watch.is_stale = True

    def leave(self, directory: str) -> None:
        """Forget a session; the watch goes with the last session and the last worker."""
        self._sessions[directory] -= 1
        self._close_unused(directory)

    def before_exit(self, worker: Worker) -> None:
        """Look at the project of a worker that is about to be asked to exit."""
        if (watch := self._of(worker)) is not None:
            watch.before_exit(worker)

    def after_exit(self, worker: Worker) -> None:
        """Look at the project of a worker whose cell has ended."""
        if (watch := self._of(worker)) is not None:
            watch.after_exit()
        self._close_unused(worker.spec.directory)

    def _of(self, worker: Worker) -> ProjectWatch | None:
        return self._watches.get(worker.spec.directory) if worker.spec.policy.repaired else None

    def _close_unused(self, directory: str) -> None:
        if self._sessions[directory] <= 0 and not self._services.pool.has_writers(directory):
            del self._sessions[directory]
            if (watch := self._watches.pop(directory, None)) is not None:
                watch.close()


def _changed_at_ns(descriptor: int) -> int:
    """Return the change time of a directory; 0 where its file system does not tell."""
    try:
        return os.fstat(descriptor).st_ctime_ns
    except OSError:
        return 0


def _is_there(place: Place) -> bool:
    try:
        return place.is_at(os.lstat(place.path))
    except OSError:
        return False


def _move_aside(directory: int, name: str) -> str:
    """Rename an entry of a directory to a name that does not count; return that name.

    A tool can have taken names beforehand, made them too long for a suffix, and taken away the right to write in the
    directory, so there is another way for each. Raises `OSError`.
    """
    mode = os.fstat(directory).st_mode
    names = [f"{name}.moved-aside", *(f"{name}.moved-aside-{number}" for number in range(2, NAMES_TRIED + 1))]
    names.append(f"moved-aside-{secrets.token_hex(8)}")
    for aside in names:
        try:
            os.lstat(aside, dir_fd=directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                continue
            raise
        else:
            continue
        try:
            os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
        except PermissionError:
            if mode & OWNER_WRITES == OWNER_WRITES:
                raise
            os.fchmod(directory, stat.S_IMODE(mode) | OWNER_WRITES)
            try:
                os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
            finally:
                os.fchmod(directory, stat.S_IMODE(mode))
        return aside
    raise OSError(errno.EEXIST, "every name is taken")
