"""A tool that tries what the kernel offers on sockets, on other processes of its cell, and outside of its directories."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import struct
import tempfile
from collections.abc import Callable

from toolcell import tool

libc = ctypes.CDLL(None, use_errno=True)
AF_INET, LOOPBACK = socket.AF_INET, "127.0.0.1"


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def call(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *words))


def set_option(level: int, option: int, value: bytes) -> None:
    with socket.socket() as one:
        one.setsockopt(level, option, value)


def connect_pair(kind: int, *, peer_ends: bool) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with one, other:
        if peer_ends:
            other.close()
        address = struct.pack("=H", socket.AF_UNIX) + os.path.abspath("user.sock").encode() + b"\0"
        checked(libc.connect(one.fileno(), address, len(address)))


def bind_pair(name: str) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.bind(name)


def netlink(request: bytes, to: int = 0, protocol: int = 0) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as one:
        one.bind((0, 0))
        one.sendto(request, (to, 0))
        if error := struct.unpack_from("=i", one.recv(4096), 16)[0]:
            raise OSError(-error, os.strerror(-error))


def send(flags: int = 0, host: str = LOOPBACK) -> None:
    family = socket.AF_INET6 if ":" in host else AF_INET
    with open("port") as file, socket.socket(family) as one:
        port = int(file.read())
        if flags:
            one.sendto(b"x", flags, (host, port))
        else:
            one.connect((host, port))


def by_interface(request: int, data: bytes) -> None:
    with socket.socket(AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, request, data)


def write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


ADDRESS = struct.pack("=IHHII", 32, 20, 5, 1, 0) + struct.pack("=BBBBIHHI", 2, 8, 0, 0, 1, 8, 2, 0x0100007F)
UP = struct.pack("16sH14x", b"lo", 0)

TRIES: dict[str, Callable[[], object]] = {
    # sockets
    "connect a pair by name": lambda: connect_pair(socket.SOCK_STREAM, peer_ends=False),
    "connect a pair whose peer has ended": lambda: connect_pair(socket.SOCK_STREAM, peer_ends=True),
    "connect a pair of packets": lambda: connect_pair(socket.SOCK_SEQPACKET, peer_ends=True),
    "name a pair in the project": lambda: bind_pair("pair.sock"),
    "name a pair as a protected file": lambda: bind_pair("CLAUDE.md"),
    "connect": send,
    "connect by a mapped address": lambda: send(host="::ffff:127.0.0.1"),
    "connect to any address": lambda: send(host="0.0.0.0"),  # noqa: S104  # it is connected to
    "connect by the sixth version": lambda: send(host="::1"),
    "connect with the first bytes": lambda: send(0x20000000),
    "diagnose sockets": lambda: netlink(bytes(32), protocol=4),
    "address of an interface": lambda: netlink(ADDRESS),
    "netlink to another process": lambda: netlink(bytes(32), to=1),
    "interface down": lambda: by_interface(0x8914, UP),
    "neighbours": lambda: by_interface(0x8955, bytes(64)),
    "forged sender": lambda: set_option(socket.SOL_IP, 19, struct.pack("i", 1)),
    "mark": lambda: set_option(socket.SOL_SOCKET, socket.SO_MARK, struct.pack("i", 1)),
    "large buffer": lambda: set_option(socket.SOL_SOCKET, 33, struct.pack("i", 2**26)),
    "packet filter": lambda: set_option(socket.SOL_IP, 64, bytes(96)),
    "repair": lambda: set_option(socket.SOL_TCP, 19, struct.pack("i", 1)),
    "kernel's TLS": lambda: set_option(socket.SOL_TCP, 31, b"espintcp"),
    "program on a socket": lambda: set_option(socket.SOL_SOCKET, 50, struct.pack("i", 3)),
    # files that are open for reading
    "write by /proc": lambda: write(f"/proc/self/fd/{os.open('/usr/bin/env', os.O_RDONLY)}"),
    "name by a handle": lambda: call(303, -100, b".", bytes(136), bytes(4), 0),
    "watch all": lambda: call(300, 0x200, 0),
    "kernel's settings": lambda: write("/proc/sys/kernel/core_pattern"),
    "last process number": lambda: write("/proc/sys/kernel/ns_last_pid"),
    "network's settings": lambda: write("/proc/sys/net/ipv4/ip_forward"),
    "time of a namespace": lambda: write("/proc/self/timens_offsets"),
    "map of users": lambda: write("/proc/self/uid_map"),
    "own priority at the end of memory": lambda: write("/proc/self/oom_score_adj"),
    # the cell
    "namespaces of another": lambda: checked(libc.setns(os.pidfd_open(os.getppid()), 0x20000)),
    "namespaces by a request": lambda: fcntl.ioctl(os.pidfd_open(1), 0xFF04),
    "root of another": lambda: os.listdir(os.path.join("/proc", str(os.getppid()), "root", "etc", "..")),
    "descriptors of another": lambda: os.readlink(f"/proc/{os.getppid()}/fd/4"),
    "environment of another": lambda: os.open(f"/proc/{os.getppid()}/environ", os.O_RDONLY),
    "end of another's memory": lambda: call(448, os.pidfd_open(os.getppid()), 0),
    "core of another": lambda: call(157, 62, 1, os.getppid(), 1, 0),
    "real time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "user namespace": lambda: checked(libc.unshare(0x10000000)),
    "clock": lambda: checked(libc.settimeofday(struct.pack("qq", 1, 1), None)),
    "shared memory with a key": lambda: (checked(libc.shmget(1, 2**20, 0o1600))),
    "file of a tracer": lambda: write("/sys/kernel/debug/tracing/trace"),
    "group of processes": lambda: write("/sys/fs/cgroup/cgroup.procs"),
}  # fmt: skip


@tool
def kernel() -> str:
    """Try all."""
    signal.alarm(30)
    came: dict[str, str] = {}
    for name, attempt in TRIES.items():
        try:
            attempt()
            came[name] = "done"
        except OSError as error:
            came[name] = errno.errorcode.get(error.errno or 0, str(error))
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(tempfile.gettempdir(), "left"))
    return json.dumps(came)
