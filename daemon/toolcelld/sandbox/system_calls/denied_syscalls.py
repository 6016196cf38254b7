"""The system calls that a cell may not make, and why.

A deny list, because tools run arbitrary programs. It contains calls that create or enter namespaces and mounts, inspect
other processes or act on them by number, use parts of the kernel that a tool does not need, or create objects that
outlive the cell. Calls whose arguments are in memory, where a filter cannot read them, fail with ENOSYS, which
programs handle.

Unix sockets with a name are refused in every cell: the user's message bus, agents and container daemons listen on them
and would run a program outside the cell, and Landlock cannot tell them apart. Pairs of connected stream sockets are
allowed, so asyncio and child processes work; managers of multiprocessing, X and D-Bus do not. Pairs of datagram
sockets are refused, because they can be connected to a name later.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolcelld.sandbox.policy import SandboxPolicy

CLONE_NEW: Final = 0x7E020000  # mount, cgroup, uts, ipc, user, process and network namespaces
CLONE_NEWTIME: Final = 0x80  # in unshare only; a signal's number in clone
TIOCSTI: Final = 0x5412
TIOCLINUX: Final = 0x541C
SAME_PERSONALITY: Final = (0, 0xFFFFFFFF)  # the default, and the query of the current value
OF_A_USER: Final = {"setpriority": 2, "ioprio_set": 3}  # PRIO_USER, IOPRIO_WHO_USER
SOCKET_KIND: Final = 0xF  # without SOCK_CLOEXEC and SOCK_NONBLOCK
PROTOCOLS: Final = (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP, socket.IPPROTO_ICMPV6)
LEASES: Final = (1024, 1040)  # F_SETLEASE, F_SETDELEG
O_TMPFILE: Final = os.O_TMPFILE & ~os.O_DIRECTORY
SEGMENT_BITS: Final = 0xFFFFE000
"""One of them is set in every size from two pages on; the kernel has 4096 segments at most."""
PUNCH_HOLE: Final = 3  # FALLOC_FL_PUNCH_HOLE with FALLOC_FL_KEEP_SIZE, which it needs
RESERVE: Final = (0x40305828, 0x4030582A, 0x40305839)
"""FS_IOC_RESVSP, FS_IOC_RESVSP64 and FS_IOC_ZERO_RANGE, which keep the size, too."""
SUBVOLUMES: Final = (0x9400, 0xBC00)
"""The requests of btrfs and of bcachefs: they make, copy and remove directories, by a name, and Landlock is not asked."""
REQUEST_KIND: Final = 0xFF00
CLONES: Final = (0x40049409, 0x4020940D, 0xC0189436)
"""FICLONE, FICLONERANGE and FIDEDUPERANGE, by which every file system shares what is in files."""
SET_ID: Final = stat.S_ISUID | stat.S_ISGID
ALL_BITS: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Is:
    """A condition: an argument, masked with `bits`, is one of the values; inverted, none of them."""

    argument: int
    values: tuple[int, ...]
    bits: int = ALL_BITS
    inverted: bool = False
    upper: bool = False
    """Whether the upper 32 bits of the argument are compared, in place of the lower ones."""


@dataclass(frozen=True, slots=True)
class DeniedSyscall:
    """The errno of a call for which all conditions hold."""

    error: int
    when: tuple[Is, ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """The variants of the filter."""

    network: bool  # internet sockets
    programs: bool  # execve
    memory_files: bool  # memfd_create: only a control group counts its memory
    apart: bool  # in process and IPC namespaces of its own
    listen: bool = True  # sockets that accept connections; where there is no network there are none


Table: TypeAlias = Mapping[str, Sequence[DeniedSyscall]]
"""By name of the call; the first matching entry decides."""


def filter_of(policy: SandboxPolicy, *, memory_files: bool) -> Filter:
    """Return the variant of the filter for a policy."""
    apart = policy.enclosure == "strict"
    # A strict cell without the host's network has a network namespace, whose loopback serves only the cell and its daemon.
    network = apart or policy.network == "open"
    return Filter(
        network,
        policy.execute,
        memory_files,
        apart,
        policy.network != "open" or policy.listen,
    )


def refusals(wanted: Filter) -> Table:
    """Return the refused calls of a variant."""
    table = {**_always(_FORBIDDEN, errno.EPERM), **_always(_UNKNOWN, errno.ENOSYS)}
    table |= _files() | _namespaces_and_terminals() | _sockets(wanted)
    if not wanted.listen:
        # Without bind, listen chooses a port itself, which Landlock does not see.
        table |= _always(("listen",), errno.EACCES)
    if not wanted.programs:
        table |= _always(("execve", "execveat"), errno.EPERM)
    if not wanted.memory_files:
        table |= _always(("memfd_create", "memfd_secret"), errno.ENOSYS)
    if not wanted.apart:
        table |= _always(_SHARED, errno.ENOSYS) | _on_others()
    else:
        table |= _memory_of_ipc()
    return table


def _always(names: Iterable[str], error: int) -> dict[str, Sequence[DeniedSyscall]]:
    return {name: (DeniedSyscall(error),) for name in names}


_FORBIDDEN: Final = (
    # the view: mounts and roots
    "mount", "umount2", "pivot_root", "chroot", "setns", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "name_to_handle_at", "open_by_handle_at", "fanotify_init",
    # other processes' memory and descriptors, and the user's keys
    "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "add_key", "request_key", "keyctl",
    # the kernel's own
    "bpf", "perf_event_open", "lookup_dcookie", "nfsservctl", "kexec_load", "kexec_file_load", "init_module", "finit_module",
    "delete_module", "modify_ldt", "iopl", "ioperm",
    # the machine
    "reboot", "syslog", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "settimeofday", "clock_settime",
    "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "vhangup",
)  # fmt: skip

_UNKNOWN: Final = (
    "clone3", "openat2",  # their arguments are in memory; programs go on to clone and openat
    "io_uring_setup", "io_uring_enter", "io_uring_register",  # its operations bypass the filter
    "userfaultfd",
    "io_setup",  # all programs of the machine share the number of its requests
    "uselib",  # maps a file where the file says
)  # fmt: skip
"""Fail with ENOSYS, as on an older kernel."""

_SHARED: Final = (
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",  # outlive the cell and are shared with the user's other programs
    "inotify_init", "inotify_init1",  # reveals the names of files that cannot be read
)  # fmt: skip
"""Refused unless the cell has its own IPC namespace."""


def _memory_of_ipc() -> dict[str, Sequence[DeniedSyscall]]:
    """Refuse what holds memory that belongs to no process, as only a control group counts it.

    Small segments stay: PostgreSQL uses one of 56 bytes as a lock. Landlock refuses to open a POSIX queue that was made
    before it asks, and the bytes of that one are the user's.
    """
    large = [
        DeniedSyscall(errno.ENOSYS, (Is(1, (0,), SEGMENT_BITS, inverted=True),)),
        DeniedSyscall(errno.ENOSYS, (Is(1, (0,), inverted=True, upper=True),)),
    ]
    return {"shmget": large, **_always(("msgget", "semget", "mq_open"), errno.ENOSYS)}


def _files() -> dict[str, Sequence[DeniedSyscall]]:
    """Refuse devices, setuid and setgid files, leases, for which others wait, and space beyond the size of a file.

    The limit on the size of a file does not count what is allocated beyond its end. Programs go on without it.
    """

    def modes(argument: int, *when: Is) -> list[DeniedSyscall]:
        return [DeniedSyscall(errno.EPERM, (*when, Is(argument, (0,), SET_ID, inverted=True)))]

    def nodes(argument: int) -> list[DeniedSyscall]:
        device = Is(argument, (stat.S_IFCHR, stat.S_IFBLK), 0o170000)
        return [DeniedSyscall(errno.EPERM, (device,)), *modes(argument)]

    def creates(argument: int) -> Is:  # without O_CREAT or O_TMPFILE the mode is ignored
        return Is(argument, (0,), os.O_CREAT | O_TMPFILE, inverted=True)

    return {
        "chmod": modes(1), "fchmod": modes(1), "fchmodat": modes(2), "fchmodat2": modes(2), "creat": modes(1),
        "open": modes(2, creates(1)), "openat": modes(3, creates(2)), "mknod": nodes(1), "mknodat": nodes(2),
        "fcntl": [DeniedSyscall(errno.EACCES, (Is(1, LEASES),))],
        "fallocate": [DeniedSyscall(errno.EOPNOTSUPP, (Is(1, (0, PUNCH_HOLE), inverted=True),))],
    }  # fmt: skip


def _namespaces_and_terminals() -> dict[str, Sequence[DeniedSyscall]]:
    def none_of(bits: int) -> list[DeniedSyscall]:
        return [DeniedSyscall(errno.EPERM, (Is(0, (0,), bits, inverted=True),))]

    return {
        "clone": none_of(CLONE_NEW),
        "unshare": none_of(CLONE_NEW | CLONE_NEWTIME),
        "personality": [DeniedSyscall(errno.EPERM, (Is(0, SAME_PERSONALITY, inverted=True),))],
        "ioctl": [
            DeniedSyscall(errno.EPERM, (Is(1, (TIOCSTI, TIOCLINUX)),)),  # insert input into a terminal
            DeniedSyscall(errno.EOPNOTSUPP, (Is(1, RESERVE),)),  # as `fallocate`
            DeniedSyscall(errno.EOPNOTSUPP, (Is(1, SUBVOLUMES, REQUEST_KIND), Is(1, CLONES, inverted=True))),
        ],
    }


def _sockets(wanted: Filter) -> dict[str, Sequence[DeniedSyscall]]:
    paired = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    pairs = [
        DeniedSyscall(errno.EAFNOSUPPORT, (Is(0, (socket.AF_UNIX,), inverted=True),)),
        DeniedSyscall(errno.EPERM, (Is(1, paired, SOCKET_KIND, inverted=True),)),
    ]
    if not wanted.network:
        # A pair could be given an abstract name, which the user's other programs could not have meanwhile.
        bind = [DeniedSyscall(errno.EACCES)]
        return {"socket": [DeniedSyscall(errno.EAFNOSUPPORT)], "socketpair": pairs, "bind": bind}
    internet, kinds = (socket.AF_INET, socket.AF_INET6), (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    return {
        "socketpair": pairs,
        "socket": [
            # Resolvers query routes over netlink.
            DeniedSyscall(errno.EAFNOSUPPORT, (Is(0, (*internet, socket.AF_NETLINK), inverted=True),)),
            # Raw sockets can forge senders; other kinds and protocols are rarely used kernel code.
            DeniedSyscall(errno.EPERM, (Is(0, internet), Is(1, kinds, SOCKET_KIND, inverted=True))),
            DeniedSyscall(errno.EPROTONOSUPPORT, (Is(0, internet), Is(2, PROTOCOLS, inverted=True))),
            DeniedSyscall(
                errno.EPROTONOSUPPORT,
                (Is(0, (socket.AF_NETLINK,)), Is(2, (socket.NETLINK_ROUTE,), inverted=True)),
            ),
        ],
    }


_NUMBERED: Final = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
"""What the kernel lets act on any process of the user, by its number."""


def refusals_on(pids: tuple[int, ...]) -> Table:
    """Return the refused calls of a process that must not act on these others of its cell, nor leave queues to them."""
    # 0 is PRIO_PROCESS; for ioprio_set it is 1
    of_group = DeniedSyscall(errno.EPERM, (Is(0, (0,), inverted=True),))
    return {
        **dict.fromkeys(_NUMBERED, (DeniedSyscall(errno.EPERM, (Is(0, pids),)),)),
        "setpriority": (of_group, DeniedSyscall(errno.EPERM, (Is(1, pids),))),
        "ioprio_set": (
            DeniedSyscall(errno.EPERM, (Is(0, (1,), inverted=True),)),
            DeniedSyscall(errno.EPERM, (Is(1, pids),)),
        ),
        "mq_open": (DeniedSyscall(errno.ENOSYS),),
    }


def _on_others() -> dict[str, Sequence[DeniedSyscall]]:
    """Refuse calls on other processes by number; 0 is the caller.

    A thread has a number too, so setting the affinity of another thread fails, as it does in many containers.
    """
    other = DeniedSyscall(errno.EPERM, (Is(0, (0,), inverted=True),))
    of_group = DeniedSyscall(errno.EPERM, (Is(1, (0,), inverted=True),))
    return {
        **dict.fromkeys(_NUMBERED, (other,)),
        **{
            name: (DeniedSyscall(errno.EPERM, (Is(0, (user,)),)), of_group)
            for name, user in OF_A_USER.items()
        },
    }
