"""A world of its own for a cell: what `strict` has beyond `baseline`.

The keeper enters a user, network, IPC and process namespace before it forks, so that everything
below it is born inside; `split_off` is that. The worker, which alone knows what the cell is wanted
for, takes a mount namespace and arranges what can be seen; `furnish` is that. Both need what only
the first process of a user namespace has, and the worker gives it up right after.

The view is made of the host's, so that no path changes its meaning: everything is read-only; home
directories, /run, the temporary directories and the daemon's own state are empty; what the policy
grants is put back at its own place; /proc shows the cell alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from toolcelld.worker import linux
from toolcelld.worker.policy import Policy

__all__ = ["HIDDEN", "furnish", "split_off"]

HIDDEN: Final = ("/home", "/run", "/var/run", "/tmp", "/var/tmp", "/dev/shm", "/mnt", "/media")
"""Where people, their programs and their daemons keep what is theirs; the home of this user is in the policy."""
SHARED_MEMORY_BYTES: Final = 64 * 2**20
"""Of /dev/shm: multiprocessing's semaphores need a page each."""
SCRATCH: Final = "/tmp"
SIOCGIFFLAGS: Final = 0x8913
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 1
# What is done with a place, in the order in which it is done where two are the same.
_EMPTY, _READABLE, _WRITABLE = range(3)
INTERFACE: Final = struct.Struct("16sH14x")


def split_off() -> None:
    """Enter namespaces of one's own; the next child is the first process of its own."""
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWPID)
    _write("/proc/self/setgroups", b"deny")
    _write("/proc/self/uid_map", b"%d %d 1" % (uid, uid))
    _write("/proc/self/gid_map", b"%d %d 1" % (gid, gid))
    _loopback_up()


def _write(path: str, text: bytes) -> None:
    with open(path, "wb") as file:
        file.write(text)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = INTERFACE.pack(b"lo", 0)
        _, flags = INTERFACE.unpack(fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, INTERFACE.pack(b"lo", flags | IFF_UP))


def furnish(policy: Policy, needed: Sequence[str], scratch_bytes: int | None) -> None:
    """Arrange the view: `needed`, by their real names, and what the policy grants stays, what it hides and the usual places go."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    emptied = _present([*HIDDEN, *policy.hidden])
    needed_paths = [*needed, *_present(policy.readable)]
    kept = dict.fromkeys(_outermost(path for path in needed_paths if _below_any(path, emptied)))
    kept |= dict.fromkeys(_present(policy.protected))
    # Taken while everything is still there.
    places = [(path, _EMPTY, -1) for path in emptied]
    places += [(path, _READABLE, linux.open_tree(path)) for path in kept]
    places += [(path, _WRITABLE, linux.open_tree(path)) for path in _present(policy.writable)]
    linux.set_read_only("/")
    # From the root outwards, so that the narrower word holds: what is granted within what is hidden is
    # there, and what is hidden within what is granted is not.
    for path, kind, tree in sorted(places, key=lambda place: (place[0].count("/"), place[1])):
        if kind == _EMPTY:
            _empty(path, scratch_bytes)
            continue
        if kind == _READABLE:
            linux.set_read_only(tree)
        _make_place(path, tree)
        linux.move_mount(tree, path)
        os.close(tree)
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)


def _empty(path: str, scratch_bytes: int | None) -> None:
    if not os.path.isdir(path):
        if os.path.exists(path):  # and does not lie in what was emptied already
            nothing = linux.open_tree(os.devnull)
            linux.move_mount(nothing, path)
            os.close(nothing)
        return
    size = {"/dev/shm": SHARED_MEMORY_BYTES, SCRATCH: scratch_bytes}.get(path)
    options = "mode=0755" if size is None else f"mode=0755,size={size}"
    linux.mount("tmpfs", path, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)


def _present(paths: Iterable[str]) -> list[str]:
    """Those that are there, by their real names, each once."""
    return list(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def _outermost(paths: Iterable[str]) -> list[str]:
    """Those that lie below no other one."""
    kept: list[str] = []
    for path in sorted(paths):
        if not _below_any(path, kept):
            kept.append(path)
    return kept


def _below_any(path: str, others: Iterable[str]) -> bool:
    return any(path == other or path.startswith(other + "/") for other in others)


def _make_place(path: str, tree: int) -> None:
    """Have something of the right kind to mount on, where the place was emptied."""
    if os.path.lexists(path):
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if stat.S_ISDIR(os.fstat(tree).st_mode):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
