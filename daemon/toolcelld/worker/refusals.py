"""The system calls that a cell may not make, and why.

A list of what is refused, as tools run any program there is. In it stands whatever makes or enters
namespaces and mounts, looks into other processes or acts on them by number, talks to parts of the
kernel that a tool does not need, or leaves something behind that no cell owns. What passes its
arguments in memory, where no filter can read them, is refused as unknown: programs know how to go
on from that.

Named unix sockets are refused in every cell. Behind them stand the user's bus, agents and container
daemons, any of which would run a program outside, and Landlock cannot tell them apart. Pairs of
connected sockets stay, so that asyncio and child processes work; multiprocessing's managers, X and
D-Bus do not. A pair of datagram sockets is refused as well: it could be connected to a name later.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolcelld.worker.policy import Policy

__all__ = ["ALL_BITS", "Filter", "Is", "Refusal", "filter_of", "refusals"]

CLONE_NEW: Final = 0x7E020000  # mount, cgroup, uts, ipc, user, process and network namespaces
CLONE_NEWTIME: Final = 0x80  # in unshare only; a signal's number in clone
TIOCSTI: Final = 0x5412
TIOCLINUX: Final = 0x541C
SAME_PERSONALITY: Final = (0, 0xFFFFFFFF)  # Linux as it is, and the question which one it is
OF_A_USER: Final = {"setpriority": 2, "ioprio_set": 3}  # PRIO_USER, IOPRIO_WHO_USER
SOCKET_KIND: Final = 0xF  # without SOCK_CLOEXEC and SOCK_NONBLOCK
PROTOCOLS: Final = (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP, socket.IPPROTO_ICMPV6)
O_TMPFILE: Final = os.O_TMPFILE & ~os.O_DIRECTORY
SET_ID: Final = stat.S_ISUID | stat.S_ISGID
ALL_BITS: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Is:
    """Whether an argument, or these bits of it, is one of the values; or, inverted, none of them."""

    argument: int
    values: tuple[int, ...]
    bits: int = ALL_BITS
    inverted: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error of a call when everything in `when` holds."""

    error: int
    when: tuple[Is, ...] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """What differs between cells."""

    network: bool  # internet sockets
    programs: bool  # execve
    memory_files: bool  # memfd_create: what is in one counts nowhere but in a control group
    apart: bool  # in process and IPC namespaces of its own


Table: TypeAlias = Mapping[str, Sequence[Refusal]]
"""By the call's name; the first refusal that holds is the answer."""


def filter_of(policy: Policy, *, memory_files: bool) -> Filter:
    """What a policy means for system calls."""
    apart = policy.enclosure == "strict"
    # A strict cell's network is its own, and empty: its loopback is for its own servers, and for the proxy.
    return Filter(apart or policy.network == "open", policy.execute, memory_files, apart)


def refusals(wanted: Filter) -> Table:
    """Everything that is refused under a filter."""
    table = {**_always(_FORBIDDEN, errno.EPERM), **_always(_UNKNOWN, errno.ENOSYS)}
    table |= _files() | _namespaces_and_terminals() | _sockets(wanted)
    if not wanted.programs:
        table |= _always(("execve", "execveat"), errno.EPERM)
    if not wanted.memory_files:
        table |= _always(("memfd_create", "memfd_secret"), errno.ENOSYS)
    if not wanted.apart:
        table |= _always(_SHARED, errno.ENOSYS) | _on_others()
    return table


def _always(names: Iterable[str], error: int) -> dict[str, Sequence[Refusal]]:
    return {name: (Refusal(error),) for name in names}


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
    "io_uring_setup", "io_uring_enter", "io_uring_register",  # does what it is told past any filter
    "userfaultfd",
)  # fmt: skip
"""As on an older kernel."""

_SHARED: Final = (
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",  # outlive the cell, and are the user's other programs' as well
    "inotify_init", "inotify_init1",  # would tell the names of files that cannot be read
)  # fmt: skip
"""What only a cell with namespaces of its own has for itself."""


def _files() -> dict[str, Sequence[Refusal]]:
    """No devices, and nothing that lends the user's rights to whoever runs it."""

    def modes(argument: int, *when: Is) -> list[Refusal]:
        return [Refusal(errno.EPERM, (*when, Is(argument, (0,), SET_ID, inverted=True)))]

    def nodes(argument: int) -> list[Refusal]:
        device = Is(argument, (stat.S_IFCHR, stat.S_IFBLK), 0o170000)
        return [Refusal(errno.EPERM, (device,)), *modes(argument)]

    def creates(argument: int) -> Is:  # without a file to create the mode means nothing, and may be anything
        return Is(argument, (0,), os.O_CREAT | O_TMPFILE, inverted=True)

    return {
        "chmod": modes(1), "fchmod": modes(1), "fchmodat": modes(2), "fchmodat2": modes(2), "creat": modes(1),
        "open": modes(2, creates(1)), "openat": modes(3, creates(2)), "mknod": nodes(1), "mknodat": nodes(2),
    }  # fmt: skip


def _namespaces_and_terminals() -> dict[str, Sequence[Refusal]]:
    def none_of(bits: int) -> list[Refusal]:
        return [Refusal(errno.EPERM, (Is(0, (0,), bits, inverted=True),))]

    return {
        "clone": none_of(CLONE_NEW),
        "unshare": none_of(CLONE_NEW | CLONE_NEWTIME),
        "personality": [Refusal(errno.EPERM, (Is(0, SAME_PERSONALITY, inverted=True),))],
        "ioctl": [Refusal(errno.EPERM, (Is(1, (TIOCSTI, TIOCLINUX)),))],  # typing into a terminal
    }


def _sockets(wanted: Filter) -> dict[str, Sequence[Refusal]]:
    paired = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    pairs = [
        Refusal(errno.EAFNOSUPPORT, (Is(0, (socket.AF_UNIX,), inverted=True),)),
        Refusal(errno.EPERM, (Is(1, paired, SOCKET_KIND, inverted=True),)),
    ]
    if not wanted.network:
        return {"socket": [Refusal(errno.EAFNOSUPPORT)], "socketpair": pairs}
    internet, kinds = (socket.AF_INET, socket.AF_INET6), (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    return {
        "socketpair": pairs,
        "socket": [
            # Routes, over netlink, are what a resolver asks for.
            Refusal(errno.EAFNOSUPPORT, (Is(0, (*internet, socket.AF_NETLINK), inverted=True),)),
            # Raw ones can lie about who sends; the other kinds and protocols are code that seldom runs.
            Refusal(errno.EPERM, (Is(0, internet), Is(1, kinds, SOCKET_KIND, inverted=True))),
            Refusal(errno.EPROTONOSUPPORT, (Is(0, internet), Is(2, PROTOCOLS, inverted=True))),
            Refusal(
                errno.EPROTONOSUPPORT,
                (Is(0, (socket.AF_NETLINK,)), Is(2, (socket.NETLINK_ROUTE,), inverted=True)),
            ),
        ],
    }


def _on_others() -> dict[str, Sequence[Refusal]]:
    """Calls on a process by its number, which may be anybody's; 0 is the caller.

    A thread has a number too: pinning another one of its own fails, as it does in many containers.
    """
    other = Refusal(errno.EPERM, (Is(0, (0,), inverted=True),))
    numbered = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
    of_group = Refusal(errno.EPERM, (Is(1, (0,), inverted=True),))
    return {
        **dict.fromkeys(numbered, (other,)),
        **{name: (Refusal(errno.EPERM, (Is(0, (user,)),)), of_group) for name, user in OF_A_USER.items()},
    }
