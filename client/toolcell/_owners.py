"""Who else can change what is in the directories of a path: the question of git's `safe.directory` and ssh's StrictModes."""

from __future__ import annotations

import contextlib
import functools
import grp
import os
import pwd
import stat
from collections.abc import Collection
from itertools import islice
from typing import Final, NamedTuple

ACL: Final = "system.posix_acl_access"
ENTRIES_MAX: Final = 20_000
"""Below one directory, as many as its digest covers."""
SYSTEM_GROUPS: Final = 1000
"""Groups of people have higher numbers (SYS_GID_MAX of login.defs)."""


class Step(NamedTuple):
    """A directory on a path, and who else can change what is in it; empty where only this user and root can."""

    path: str
    fault_above: str  # as a directory on the way to the project
    fault_within: str  # as a directory of the project


def walk(directory: str, safe: Collection[str] = (), *, user: int | None = None) -> list[Step]:
    """Look at every component of a path, from the root directory on.

    Args:
        directory: An absolute path without links.
        safe: Directories that are accepted although other users can write in them.
        user: Who may change them, besides root; this user by default.

    Raises:
        OSError: The directory does not exist, or a component of its path is a link.
    """
    path = "/"
    here = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        user = os.geteuid() if user is None else user
        steps = [_step(path, here, user)]
        for part in filter(None, directory.split("/")):
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here, path = below, os.path.join(path, part)
            steps.append(_step(path, here, user))
    finally:
        os.close(here)
    return [Step(step.path, "", "") if step.path in safe else step for step in steps]


def faults_of(path: str, safe: Collection[str] = (), *, user: int | None = None) -> list[tuple[str, str]]:
    """Say who else can change a file or a directory, by itself or through those above it.

    Args:
        path: An absolute path; what it leads to is looked at.
        safe: Directories that are accepted, with their files, although other users can write in them.
        user: Who may change it, besides root; this user by default.

    Returns:
        Directories that are at fault, each with the fault as a clause; empty without any.

    Raises:
        OSError: There is no such file.
    """
    user, path = os.geteuid() if user is None else user, os.path.realpath(path)
    *above, holder = walk(os.path.dirname(path), safe, user=user)
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            above.append(holder)
            holder = _step(path, descriptor, user)
            within = holder.fault_within if path not in safe else ""
        else:
            within = holder.fault_within
            if not within and holder.path not in safe:
                within = _step(path, descriptor, user).fault_within
    finally:
        os.close(descriptor)
    found = [(step.path, step.fault_above) for step in above] + [(holder.path, within)]
    return [(place, fault) for place, fault in found if fault]


def fault_below(
    directory: str, safe: Collection[str] = (), *, passed: Collection[str] = (), code: Collection[str] = ()
) -> tuple[str, str] | None:
    """Say who else can change a file, or a directory, below one that is in order itself.

    Links are followed, as an import follows them: where one leads, all above it counts too.

    Args:
        directory: An absolute path.
        safe: Directories that are accepted, with their files, although other users can write in them.
        passed: Names of entries that are not looked at.
        code: Endings of files; of the directory itself only such files count, and directories that have one of them.
            Default: none, and all count.

    Returns:
        The directory to accept, and the fault as a clause; None without any, and for what cannot be looked at.
    """
    user = os.geteuid()
    places, seen, left = [os.path.realpath(directory)], set[str](), ENTRIES_MAX
    while places:
        place = places.pop()
        if place in seen:
            continue
        seen.add(place)
        try:
            with os.scandir(place) as scanned:
                entries = [entry for entry in islice(scanned, left) if entry.name not in passed]
        except OSError:
            continue
        left -= len(entries)
        if code and len(seen) == 1:
            entries = [entry for entry in entries if _is_code(entry, tuple(code))]
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir():
                    places.append(os.path.realpath(entry.path))
                if entry.is_symlink():
                    for fault in faults_of(entry.path, safe, user=user):
                        return fault
                elif clause := _fault_of_entry(entry, safe, user):
                    return (entry.path if entry.is_dir() else place), clause
    return None


def _is_code(entry: os.DirEntry[str], endings: tuple[str, ...]) -> bool:
    with contextlib.suppress(OSError):
        if entry.is_dir():
            with os.scandir(entry.path) as scanned:
                return any(below.name.endswith(endings) for below in islice(scanned, ENTRIES_MAX))
    return entry.name.endswith(endings)


def _fault_of_entry(entry: os.DirEntry[str], safe: Collection[str], user: int) -> str:
    status = entry.stat(follow_symlinks=False)
    if status.st_uid in (0, user) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ""  # what is left to open is little
    if (entry.path if entry.is_dir() else os.path.dirname(entry.path)) in safe:
        return ""
    descriptor = os.open(entry.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _step(entry.path, descriptor, user).fault_within
    finally:
        os.close(descriptor)


def fault_of_roots(path: str) -> str:
    """Say who but root can change a file of root's, or put one there; empty where none can.

    Where its directory is missing, only the one above that decides. In a user namespace without root, its files look as
    those of any other user that is not mapped, and are accepted. Raises `OSError`.
    """
    root = max(unmapped(), 0)
    directory = os.path.dirname(path)
    for place in (os.path.dirname(directory), directory, path):
        if not os.path.lexists(place):
            break
        for _, fault in faults_of(place, user=root):
            return fault
    return ""


def _step(path: str, descriptor: int, user: int) -> Step:
    status = os.fstat(descriptor)
    has_acl = bool(status.st_mode & stat.S_IWGRP) and _has_acl(descriptor)
    above, within = (_fault(path, status, user, within=within, has_acl=has_acl) for within in (False, True))
    return Step(path, above, within)


def _fault(path: str, status: os.stat_result, user: int, *, within: bool, has_acl: bool) -> str:
    """Say who else can change what is in a directory; empty if only this user and root can."""
    if status.st_uid not in (0, user) and (within or status.st_uid != unmapped()):
        return f"{path} belongs to the user {user_name(status.st_uid)}"
    if status.st_mode & stat.S_ISVTX and not within:
        return ""  # entries can be removed and renamed by their owners only
    if status.st_mode & stat.S_IWOTH:
        return f"{path} can be written by every user"
    if status.st_mode & stat.S_IWGRP and (has_acl or not _is_private(status.st_gid, user)):
        return f"{path} can be written by other users: by the group {_group(status.st_gid)} or an access list"
    return ""


def _has_acl(descriptor: int) -> bool:
    """Whether a list of users and groups stands behind the mode: the bits of the group are its mask then."""
    try:
        return bool(os.getxattr(f"/proc/self/fd/{descriptor}", ACL))
    except OSError:
        return False


@functools.cache
def unmapped() -> int:
    """Return the user that stands for all that a user namespace does not map; -1 where all users are mapped."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            if [line.split()[2] for line in file] == ["4294967295"]:
                return -1
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError, IndexError):
        return -1


@functools.cache
def _is_private(group: int, number: int) -> bool:
    """Whether no user but one is in a group.

    That is the user's own, as many systems give one to each user: its primary one, with no other member. And a group of the
    system without members, as Debian's `staff`, which owns /usr/local there; of others a directory service may
    not list the members.
    """
    try:
        user, found = pwd.getpwuid(number), grp.getgrgid(group)
    except KeyError:
        return False
    alone = all(name in (user.pw_name, "root") for name in found.gr_mem)
    if not alone or group == 0 or (user.pw_gid == group and found.gr_name == user.pw_name):
        return alone
    return group < SYSTEM_GROUPS and all(other.pw_gid != group for other in pwd.getpwall())


def user_name(number: int) -> str:
    """Return the name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
