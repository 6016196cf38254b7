"""System calls that Python does not offer, through ctypes.

Each function is one system call, or the few of one step, and raises `OSError` if it fails. System calls that libc does
not wrap have the same numbers on x86-64 and arm64.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

PID_BYTES_MAX: Final = 16
"""With the blank after it."""

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)

# <linux/prctl.h>
PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_NAME: Final = 15
PR_SET_SECCOMP: Final = 22
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4

# <linux/landlock.h>; the same numbers on x86-64 and arm64
SYS_LANDLOCK_CREATE_RULESET: Final = 444
SYS_LANDLOCK_ADD_RULE: Final = 445
SYS_LANDLOCK_RESTRICT_SELF: Final = 446
LANDLOCK_CREATE_RULESET_VERSION: Final = 1
LANDLOCK_RULE_PATH_BENEATH: Final = 1
LANDLOCK_RULE_NET_PORT: Final = 2
RULESET: Final = struct.Struct("=QQQ")  # handled_access_fs, handled_access_net, scoped
NET_PORT: Final = struct.Struct("=QQ")  # allowed_access, port
PATH_BENEATH: Final = struct.Struct("=Qi")  # allowed_access, parent_fd; packed
LANDLOCK_REFER: Final = 1 << 13  # link and rename between directories
LANDLOCK_SCOPE_ABSTRACT_SOCKETS: Final = 1 << 0
LANDLOCK_SCOPE_SIGNAL: Final = 1 << 1
LANDLOCK_ABI_SIGNAL: Final = 6  # Linux 6.12

# <linux/seccomp.h> and <linux/filter.h>
SECCOMP_MODE_FILTER: Final = 2
SYS_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
SECCOMP_SET_MODE_FILTER: Final = 1
SECCOMP_FILTER_FLAG_NEW_LISTENER: Final = 8
SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: Final = 32
SECCOMP_IOCTL_NOTIF_ADDFD: Final = 0x40182103
SECCOMP_IOCTL_NOTIF_SET_FLAGS: Final = 0x40082104
SECCOMP_IOCTL_NOTIF_ID_VALID: Final = 0x40082102
SECCOMP_IOCTL_NOTIF_RECV: Final = 0xC0502100
SECCOMP_IOCTL_NOTIF_SEND: Final = 0xC0182101
SECCOMP_USER_NOTIF_FLAG_CONTINUE: Final = 1
QUESTION: Final = struct.Struct("=QII64x")  # id, pid, flags; then the call, which is not looked at
ANSWER: Final = struct.Struct("=QqiI")  # id, value, error, flags
BPF_INSTRUCTION_BYTES: Final = 8

SYS_OPENAT2: Final = 437
OPEN_HOW: Final = struct.Struct("=QQQ")  # flags, mode, resolve
RESOLVE_NO_XDEV: Final = 0x01
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08

# <linux/ioprio.h>
SYS_IOPRIO: Final = {"x86_64": (251, 252), "aarch64": (30, 31)}
"""To set it and to get it."""
IOPRIO_WHO_PROCESS: Final = 1

CAPABILITIES: Final = struct.Struct("=Ii")  # version, pid
CAPABILITY_VERSION_3: Final = 0x20080522
CAPABILITY_BYTES: Final = 24  # twice the effective, permitted and inheritable ones

NICE_AHEAD: Final = -10
"""Ten times the share of a program that has the usual priority."""


UNUSED_SIGNALS: Final = (
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR,
    signal.SIGSTKFLT, signal.SIGXCPU, signal.SIGXFSZ, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)  # fmt: skip
"""Signals that end a process which does not expect them, and mean nothing to the daemon, its zygotes and keepers."""


_unused_stack: Final = (ctypes.c_longdouble * 64)()
"""Of a process that `hold_memory` starts; libc's `clone` wants one."""


def _checked(result: int, what: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, *arguments: int) -> None:
    _checked(_libc.prctl(option, *(*arguments, 0, 0, 0, 0)[:4]), f"prctl({option})")


def exit_as(code: int) -> NoReturn:
    """Exit as another process has, with its status or by its signal, given as `os.waitstatus_to_exitcode` returns it."""
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(code, 0))


def first_child(pid: int) -> int:
    """Return the first process that a process with one thread has forked and not reaped; 0 for none. Orphans come last."""
    return next(iter(first_children(pid)), 0)


def first_children(pid: int) -> Sequence[int]:
    """Return at most the first two children of a process with one thread, in the order of their start."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
        return [int(child) for child in file.read(2 * PID_BYTES_MAX).split()[:2]]
    return ()


def die_with_parent(number: int) -> None:
    """Request the signal `number` for the death of the parent. The caller then checks that the parent is still alive."""
    _prctl(PR_SET_PDEATHSIG, number)


def hold_memory() -> int:
    """Start a process that holds the memory of this one and is stopped for ever; return its pid, or 0 if that is refused.

    While it exists, the end of this process does not free its memory, which takes most of the time of an exit. It is a
    child of this process's parent, and runs nothing but the system call in which it was stopped: all signals are blocked.
    """
    former = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        stack = ctypes.addressof(_unused_stack) + ctypes.sizeof(_unused_stack)
        holder: int = _libc.clone(
            _libc.pause, ctypes.c_void_p(stack), CLONE_VM | CLONE_PARENT | signal.SIGCHLD, None
        )
        if holder <= 0:
            return 0
        os.kill(holder, signal.SIGSTOP)
        return holder
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def set_name(name: str) -> None:
    """Name the calling thread; the kernel shows the first 15 bytes, as the name of the process if it is the main thread."""
    held = ctypes.create_string_buffer(name.encode())
    _prctl(PR_SET_NAME, ctypes.addressof(held))


def set_dumpable(dumpable: bool) -> None:
    """Allow or forbid processes of the same user to trace this one and read its memory."""
    _prctl(PR_SET_DUMPABLE, int(dumpable))


def subreaper() -> None:
    """Make this process the parent of descendants that are orphaned."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def schedule_ahead(*, session: bool) -> None:
    """Schedule this thread ahead of other programs where its user may, as root mostly may; not what it forks.

    Has no effect on a program that was given a priority by who started it.

    Args:
        session: Whether its session is its own. Then it applies to the session too, which is what the kernel schedules
            where it groups sessions (`sched_autogroup`).
    """
    if os.getpriority(os.PRIO_PROCESS, 0):
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, NICE_AHEAD)
        if session:
            with open("/proc/self/autogroup", "wb", buffering=0) as file:
                file.write(b"%d" % NICE_AHEAD)


_SET_IO_PRIORITY, _GET_IO_PRIORITY = map(ctypes.c_long, SYS_IOPRIO[os.uname().machine])
_OF_THREAD: Final = (ctypes.c_int(IOPRIO_WHO_PROCESS), ctypes.c_int(0))


def io_priority() -> int:
    """Return the I/O priority of this thread: its class in the bits from 13 on, 0 if it has none of its own."""
    return _checked(_libc.syscall(_GET_IO_PRIORITY, *_OF_THREAD), "ioprio_get")


def set_io_priority(priority: int) -> None:
    """Set the I/O priority of this thread, as `io_priority` returns it."""
    _checked(_libc.syscall(_SET_IO_PRIORITY, *_OF_THREAD, ctypes.c_int(priority)), "ioprio_set")


def no_new_privileges() -> None:
    """Ignore setuid bits and file capabilities, for this process and its descendants."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def drop_bounding_set() -> None:
    """Empty the capability bounding set of this process and its descendants."""
    if os.geteuid() != 0:
        return  # lowering it needs CAP_SETPCAP
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        last = int(file.read())
    for capability in range(last + 1):
        try:
            _prctl(PR_CAPBSET_DROP, capability)
        except PermissionError:
            return  # uid 0 without capabilities, as in a container: nothing left to lower


def drop_capabilities() -> None:
    """Empty all capability sets of this process, irrevocably."""
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    _checked(_libc.capset(CAPABILITIES.pack(CAPABILITY_VERSION_3, 0), bytes(CAPABILITY_BYTES)), "capset")


def unchanged_below(directory: str, files: Mapping[str, int]) -> bool:
    """Whether files below a directory have the given modification times.

    No link is followed and no file system is entered, so what a tool puts there cannot delay the caller.

    Args:
        directory: A resolved path.
        files: By path below the directory, the time in nanoseconds.
    """
    how = OPEN_HOW.pack(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV)
    try:
        top = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        for name, stamp in files.items():
            path = os.fsencode(name)
            file = _libc.syscall(SYS_OPENAT2, top, path, how, ctypes.c_size_t(OPEN_HOW.size))
            if file < 0:
                return False
            try:
                if os.fstat(file).st_mtime_ns != stamp:
                    return False
            finally:
                os.close(file)
    finally:
        os.close(top)
    return True


def landlock_abi() -> int:
    """Return the Landlock ABI version of the kernel, or 0 without Landlock."""
    version: int = _libc.syscall(
        SYS_LANDLOCK_CREATE_RULESET,
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint32(LANDLOCK_CREATE_RULESET_VERSION),
    )
    return max(version, 0)


def create_ruleset(*, files: int = 0, ports: int = 0, scopes: int = 0) -> int:
    """Create a Landlock ruleset that handles these rights; return its descriptor."""
    attributes, size = RULESET.pack(files, ports, scopes), ctypes.c_size_t(RULESET.size)
    result = _libc.syscall(SYS_LANDLOCK_CREATE_RULESET, attributes, size, ctypes.c_uint32(0))
    return _checked(result, "landlock_create_ruleset")


def grant_beneath(ruleset: int, place: int, rights: int) -> None:
    """Add a rule that grants rights on the file of a descriptor and on everything below it."""
    rule = PATH_BENEATH.pack(rights, place)
    result = _libc.syscall(
        SYS_LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, ctypes.c_uint32(0)
    )
    _checked(result, "landlock_add_rule")


def grant_port(ruleset: int, port: int, rights: int) -> None:
    """Add a rule that grants rights on a TCP port. Since ABI 4."""
    rule = NET_PORT.pack(rights, port)
    result = _libc.syscall(SYS_LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_NET_PORT, rule, ctypes.c_uint32(0))
    _checked(result, "landlock_add_rule")


def enter_ruleset(ruleset: int) -> None:
    """Restrict this thread and its children by a ruleset, irrevocably. Needs `no_new_privileges`."""
    result = _libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    _checked(result, "landlock_restrict_self")


def restrict_signals(*, renames: bool = False) -> None:
    """Enter a Landlock domain that cannot signal processes outside it. Needs `no_new_privileges`.

    Args:
        renames: Whether links and renames between directories are as they were; by default a domain refuses them as soon
            as another one restricts files. A process in a domain that grants them cannot mount.
    """
    ruleset = create_ruleset(files=LANDLOCK_REFER if renames else 0, scopes=LANDLOCK_SCOPE_SIGNAL)
    try:
        if renames:
            root = os.open("/", os.O_PATH | os.O_CLOEXEC)
            try:
                grant_beneath(ruleset, root, LANDLOCK_REFER)
            finally:
                os.close(root)
        enter_ruleset(ruleset)
    finally:
        os.close(ruleset)


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def filter_system_calls(program: bytes) -> None:
    """Load a seccomp filter for this thread, irrevocably. Needs `no_new_privileges`."""
    filled = _FilterProgram(len(program) // BPF_INSTRUCTION_BYTES, program)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filled))


def ask_about_system_calls(program: bytes, *, killable: bool = False) -> int:
    """Load a seccomp filter that has callers wait for an answer; return the descriptor that is asked, closed on exec.

    When the last copy of the descriptor is closed, what the filter asks about fails with ENOSYS. With `killable` no signal
    but one that kills takes a call back that was received, which needs Linux 5.19.
    """
    filled = _FilterProgram(len(program) // BPF_INSTRUCTION_BYTES, program)
    result = _libc.syscall(
        ctypes.c_long(SYS_SECCOMP[os.uname().machine]),
        ctypes.c_uint(SECCOMP_SET_MODE_FILTER),
        ctypes.c_uint(
            SECCOMP_FILTER_FLAG_NEW_LISTENER | (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV if killable else 0)
        ),
        ctypes.byref(filled),
    )
    return _checked(result, "seccomp")


def let_through(asked: int) -> None:
    """Wait for a call that a filter asks about, and let it go on; return at once if it was given up meanwhile."""
    question = bytearray(QUESTION.size)
    with contextlib.suppress(FileNotFoundError):  # a signal interrupted it, and it asks again
        _control(asked, SECCOMP_IOCTL_NOTIF_RECV, question)
        answer = ANSWER.pack(QUESTION.unpack(question)[0], 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE)
        _control(asked, SECCOMP_IOCTL_NOTIF_SEND, answer)


def _control(descriptor: int, request: int, data: bytearray | bytes) -> None:
    """ioctl(2), which `fcntl.ioctl` does not repeat where a signal interrupts it."""
    while True:
        try:
            fcntl.ioctl(descriptor, request, data)
        except InterruptedError:
            continue
        return


# Namespaces and mounts. The numbers of the newer calls are the same on x86-64 and arm64.

CLONE_VM: Final = 0x00000100
CLONE_PARENT: Final = 0x00008000
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18

SYS_OPEN_TREE: Final = 428
SYS_PIDFD_GETFD: Final = 438
SYS_RENAMEAT2: Final = {"x86_64": 316, "aarch64": 276}.get(os.uname().machine, -1)
SYS_MOVE_MOUNT: Final = 429
SYS_MOUNT_SETATTR: Final = 442
RENAME_EXCHANGE: Final = 2
AT_FDCWD: Final = -100
AT_EMPTY_PATH: Final = 0x1000
AT_RECURSIVE: Final = 0x8000
OPEN_TREE_CLONE: Final = 1
OPEN_TREE_CLOEXEC: Final = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH: Final = 4
MOVE_MOUNT_T_EMPTY_PATH: Final = 0x40
MOUNT_ATTR_RDONLY: Final = 1
MOUNT_ATTRIBUTES: Final = struct.Struct("=QQQQ")  # attr_set, attr_clr, propagation, userns_fd
RESOLVE_NO_MAGICLINKS: Final = 2


def unshare(flags: int) -> None:
    """Enter new namespaces of the given kinds (`CLONE_NEW*`)."""
    _checked(_libc.unshare(flags), f"unshare({flags:#x})")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """mount(2)."""
    text = [value.encode() if value is not None else None for value in (source, target, kind)]
    _checked(
        _libc.mount(*text, ctypes.c_ulong(flags), options.encode() or None), f"mount {kind or ''} on {target}"
    )


def rename(old_directory: int, old: str | bytes, new_directory: int, new: str | bytes, flags: int) -> None:
    """renameat2(2)."""
    paths = old_directory, os.fsencode(old), new_directory, os.fsencode(new)
    _checked(
        _libc.syscall(ctypes.c_long(SYS_RENAMEAT2), *paths, ctypes.c_uint(flags)),
        f"rename {old!r} to {new!r}",
    )


def pidfd_getfd(process: int, number: int) -> int:
    """Return a copy of a descriptor of another process, closed on exec."""
    return _checked(_libc.syscall(SYS_PIDFD_GETFD, process, number, 0), "pidfd_getfd")


def openat2(
    directory: int,
    path: str | bytes,
    flags: int,
    *,
    resolve: int = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
) -> int:
    """Open a path, by default without following links in any component; return a descriptor that is closed on exec."""
    how = OPEN_HOW.pack(flags | os.O_CLOEXEC, 0, resolve)
    opened: int = _libc.syscall(
        SYS_OPENAT2, directory, os.fsencode(path), how, ctypes.c_size_t(OPEN_HOW.size)
    )
    if opened == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return opened


def open_tree(what: str | int) -> int:
    """Return a descriptor of a detached copy of the mounts at and below a path, or at what a descriptor is open on."""
    where, path = (AT_FDCWD, os.fsencode(what)) if isinstance(what, str) else (what, b"")
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH
    return _checked(_libc.syscall(SYS_OPEN_TREE, where, path, ctypes.c_uint(flags)), f"open_tree {what}")


def move_mount(tree: int, to: str | int) -> None:
    """Attach a detached copy at a path, or on what a descriptor is open on."""
    where, path = (AT_FDCWD, os.fsencode(to)) if isinstance(to, str) else (to, b"")
    flags = MOVE_MOUNT_F_EMPTY_PATH | (0 if path else MOVE_MOUNT_T_EMPTY_PATH)
    result = _libc.syscall(SYS_MOVE_MOUNT, tree, b"", where, path, ctypes.c_uint(flags))
    _checked(result, f"move_mount to {to}")


def set_read_only(what: str | int, *, alone: bool = False) -> None:
    """Make the mounts at and below a path, or a detached copy, read-only; with `alone` without those below."""
    attributes = MOUNT_ATTRIBUTES.pack(MOUNT_ATTR_RDONLY, 0, 0, 0)
    where, path = (AT_FDCWD, what.encode()) if isinstance(what, str) else (what, b"")
    result = _libc.syscall(
        SYS_MOUNT_SETATTR, where, path, ctypes.c_uint(AT_EMPTY_PATH | (0 if alone else AT_RECURSIVE)),
        attributes, ctypes.c_size_t(MOUNT_ATTRIBUTES.size),
    )  # fmt: skip
    _checked(result, f"mount_setattr {what}")


def inotify() -> int:
    """Return the descriptor of a new inotify instance; reading it does not block."""
    return _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), "inotify_init1")


def watch(instance: int, path: str, events: int) -> int:
    """Have an inotify instance report events of a path; return the watch, which may be one that it has."""
    return _checked(_libc.inotify_add_watch(instance, os.fsencode(path), events), "inotify_add_watch")


def unwatch(instance: int, watch: int) -> None:
    """Remove a watch of an inotify instance."""
    _checked(_libc.inotify_rm_watch(instance, watch), "inotify_rm_watch")
