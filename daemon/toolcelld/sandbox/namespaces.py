"""Namespaces and mounts of a `strict` cell.

The keeper enters a user, network, IPC and PID namespace before it forks (`enter_namespaces`), so that every process of
the cell starts inside them. The worker, which knows the policy, enters a mount namespace and sets up the mounts
(`mount_view`). Both need capabilities that the user namespace grants, and the worker drops them afterwards.

The mounts keep the paths of the host: everything is read-only; home directories, /run, the temporary directories and
the daemon's state are empty; what the policy grants is mounted at its original path; /proc shows only the cell.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from toolcelld import linux
from toolcelld.files.paths import Place, is_below_any, open_place, open_plain
from toolcelld.sandbox.policy import SandboxPolicy

HIDDEN: Final = ("/home", "/run", "/var/run", "/tmp", "/var/tmp", "/dev/shm", "/mnt", "/media")
"""Directories with data of users, programs and daemons. The policy adds the home directory of this user."""
SHARED_MEMORY_BYTES: Final = 64 * 2**20
"""The size of /dev/shm; each semaphore of multiprocessing needs a page."""
SCRATCH: Final = "/tmp"
SHARED_MEMORY: Final = "/dev/shm"
EMPTY: Final = ",size=1m,nr_inodes=4096"
"""The other emptied directories hold the places of mounts; only Landlock refuses to write there."""
BYTES_PER_INODE: Final = 16 * 1024
"""The size of a file system for each file that it may have: an empty one takes a kilobyte of the kernel's memory."""
INODES_MIN: Final = 1024
BOUNDED: Final = "bounded number of processes"
BOUNDED_ROUGHLY: Final = "roughly bounded number of processes"
"""The reserve of numbers could not be taken away."""
PID_MAX_SINCE: Final = (6, 14)
RESERVED_PIDS: Final = 300
"""The kernel gives these numbers only until the first wrap, so a cell begins behind them: they would be a reserve for a
fork bomb."""
NUMBERS_PER_PROCESS: Final = 2
"""A process that has ended holds its number until it is reaped: a chain of processes that fork and exit needs as many again."""
OF_NETWORK: Final = {
    "ipv4/tcp_rmem": "4096 65536 262144",
    "ipv4/tcp_wmem": "4096 65536 262144",
    "ipv4/tcp_max_tw_buckets": "0",
}  # fmt: skip
"""Buffers of a TCP socket: kernel memory that only a control group counts. On loopback these are fast enough. And no
connections that wait after their end: the next call would find their ports, and could not take them."""
OF_USER: Final = {"max_inotify_instances": 32}
"""Of the user's instances, as many as the cell may take; the user has 128 in all."""
WATCHES: Final = "/proc/sys/fs/inotify/max_user_watches"
WATCHES_PART: Final = 4
"""A cell may have one part in so many of the files that the user's programs may watch."""
SIOCGIFFLAGS: Final = 0x8913
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 1
# How a path is mounted, in the order of application when two entries name the same path.
_EMPTY, _READABLE, _WRITABLE = range(3)
INTERFACE: Final = struct.Struct("16sH14x")


def enter_namespaces(*, host_network: bool) -> None:
    """Enter new user, IPC and PID namespaces; the next child is process 1 of the PID namespace.

    Args:
        host_network: Whether to stay in the network of the host; else a new network namespace is entered too.
    """
    uid, gid = os.geteuid(), os.getegid()
    network = 0 if host_network else linux.CLONE_NEWNET
    linux.unshare(linux.CLONE_NEWUSER | network | linux.CLONE_NEWIPC | linux.CLONE_NEWPID)
    _write("/proc/self/setgroups", b"deny")
    _write("/proc/self/uid_map", b"%d %d 1" % (uid, uid))
    _write("/proc/self/gid_map", b"%d %d 1" % (gid, gid))
    with open(WATCHES, "rb") as file:
        watches = int(file.read()) // WATCHES_PART
    for name, most in {**OF_USER, "max_inotify_watches": watches}.items():
        _write(f"/proc/sys/user/{name}", b"%d" % most)
    if not host_network:
        for name, sizes in OF_NETWORK.items():
            _write(f"/proc/sys/net/{name}", sizes.encode())
        _loopback_up()


def bounds_processes() -> bool:
    """Return whether the kernel has `pid_max` for each process namespace; before, it is that of the machine."""
    major, minor = map(int, re.findall(r"\d+", os.uname().release)[:2])
    return (major, minor) >= PID_MAX_SINCE


def bound_processes(processes: int) -> str | None:
    """Bound the processes and threads of this process namespace, which also holds those of root.

    The kernel's limit for each user holds a user in a namespace of its own only; root has none.

    Args:
        processes: How many the cell may have, with its init.

    Returns:
        The name of this layer, `BOUNDED` or `BOUNDED_ROUGHLY`. None where the kernel cannot, before Linux 6.14, or a
        container has its settings read-only; the limit monitor and, but for root, the limit for each user still hold.
    """
    if not bounds_processes():
        return None
    try:
        _write("/proc/sys/kernel/pid_max", b"%d" % (RESERVED_PIDS + processes * NUMBERS_PER_PROCESS))
    except OSError:
        return None
    try:
        _write("/proc/sys/kernel/ns_last_pid", b"%d" % RESERVED_PIDS)
    except OSError:  # a kernel without CONFIG_CHECKPOINT_RESTORE
        return BOUNDED_ROUGHLY
    return BOUNDED


def _write(path: str, text: bytes) -> None:
    with open(path, "wb") as file:
        file.write(text)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = INTERFACE.pack(b"lo", 0)
        _, flags = INTERFACE.unpack(fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, INTERFACE.pack(b"lo", flags | IFF_UP))


def mount_view(policy: SandboxPolicy, needed: Sequence[str], tmpdir_bytes: int | None) -> Sequence[str]:
    """Set up the mounts of the cell.

    Args:
        policy: Grants readable and writable places and names hidden ones.
        needed: Resolved paths that stay readable: the interpreter and Toolcell's code.
        tmpdir_bytes: The size of /tmp; None for no limit.

    Returns:
        The mounts that are for `close_view`: /proc, and the emptied directories that hold the places of others.
    """
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    emptied = _present([*HIDDEN, *policy.hidden])
    found = {place.path: place for place in policy.found}
    needed_paths = [*needed, *_present(path for path in policy.readable if path not in found)]
    kept = dict.fromkeys(_outermost(path for path in needed_paths if is_below_any(path, emptied)))
    # Readable places that are links themselves, as an alias of an interpreter: the copies are mounted at their targets.
    links = {path: os.path.realpath(path) for path in policy.readable if os.path.islink(path)}
    # Detached copies are made before anything is hidden.
    places = [(path, _EMPTY, -1) for path in emptied]
    places += [(path, _READABLE, linux.open_tree(path)) for path in kept]
    places += _trees(_READABLE, (found[path] for path in policy.readable if path in found), emptied)
    writable = [path for path in policy.writable if path not in found]
    places += [(path, _WRITABLE, linux.open_tree(path)) for path in _present(writable)]
    places += _trees(_WRITABLE, (found[path] for path in policy.writable if path in found))
    places += _trees(_READABLE, (Place(path, 0, 0) for path in policy.protected))
    linux.set_read_only("/")
    # Shorter paths first, so that the more specific entry wins: a grant within a hidden directory is visible, and a
    # hidden directory within a grant is empty.
    only_hold: set[str] = set()
    for path, kind, tree in sorted(places, key=lambda place: (place[0].count("/"), place[0])):
        if kind == _EMPTY:
            if _empty(path, tmpdir_bytes) and path not in (SCRATCH, SHARED_MEMORY):
                only_hold.add(path)
            continue
        only_hold.discard(path)  # what is granted there is mounted on it
        if kind == _READABLE:
            linux.set_read_only(tree)
        _attach(path, tree)
        os.close(tree)
    for link, target in links.items():
        _link(link, target)
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    return ["/proc", *sorted(only_hold)]


def close_view(mounts: Iterable[str]) -> None:
    """Make mounts read-only in which only this module and its callers write, after the last of them has written.

    Landlock refuses to write there, and not to change modes, times and attributes, which a later call would find.

    Args:
        mounts: What `mount_view` has returned.
    """
    for path in mounts:
        linux.set_read_only(path, alone=True)


def _trees(
    kind: int, places: Iterable[Place], emptied: Sequence[str] = ("/",)
) -> Iterator[tuple[str, int, int]]:
    """Copy the mounts of places below emptied directories, opened without following links; one that is gone is left out.

    Raises `Exchanged` where something else is there than was found.
    """
    for place in places:
        if not is_below_any(place.path, emptied):
            continue
        try:
            opened = open_place(place)
        except FileNotFoundError:
            continue
        try:
            yield place.path, kind, linux.open_tree(opened)
        finally:
            os.close(opened)


def _attach(path: str, tree: int) -> None:
    """Mount a copy at its path, whatever links or other directories are put there meanwhile by other processes."""
    _make_place(path, tree)
    target = open_plain(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        linux.move_mount(tree, target)
    finally:
        os.close(target)


def _empty(path: str, tmpdir_bytes: int | None) -> bool:
    """Mount something empty; return whether it is a directory."""
    if not os.path.isdir(path):
        if os.path.exists(path):  # and is not below a directory that was emptied already
            nothing = linux.open_tree(os.devnull)
            linux.move_mount(nothing, path)
            os.close(nothing)
        return False
    sizes = {SHARED_MEMORY: SHARED_MEMORY_BYTES, SCRATCH: tmpdir_bytes}
    options = f"mode=0755{_bounds(sizes[path]) if path in sizes else EMPTY}"
    linux.mount("tmpfs", path, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
    return True


def _bounds(size: int | None) -> str:
    return f",size={size},nr_inodes={max(INODES_MIN, size // BYTES_PER_INODE)}" if size is not None else ""


def _link(path: str, target: str) -> None:
    """Make a link anew that an emptied directory removed."""
    if not os.path.lexists(path) and os.path.exists(target):
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        os.symlink(target, path)


def _present(paths: Iterable[str]) -> list[str]:
    """Return the paths that exist, resolved and without duplicates."""
    return list(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not below another one."""
    kept: list[str] = []
    for path in sorted(paths):
        if not is_below_any(path, kept):
            kept.append(path)
    return kept


def _make_place(path: str, tree: int) -> None:
    """Create a mount point of the right kind, if an emptied directory removed it."""
    if os.path.lexists(path):
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
