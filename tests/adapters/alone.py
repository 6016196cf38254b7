"""Runs a command in a network namespace that has only loopback: `python tests/adapters/alone.py COMMAND…`.

So the real agents can reach only the servers of the tests, whatever they would like to report, update or fetch.
A user other than root needs user namespaces for it, and keeps its own id in the new one.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWUSER = 0x10000000  # from linux/sched.h
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS = 0x8913  # from linux/sockios.h
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


def leave_the_network() -> None:
    """Take a network namespace of our own, and bring its loopback up."""
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWNET if user == 0 else CLONE_NEWNET | CLONE_NEWUSER
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"no network namespace: {os.strerror(error)}")
    if user != 0:
        for file, line in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{file}", "w") as map_:
                map_.write(line)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags_now,) = struct.unpack_from("16xh", fcntl.ioctl(control, SIOCGIFFLAGS, request))
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags_now | IFF_UP))


if __name__ == "__main__":
    try:
        leave_the_network()
    except OSError as error:
        # The agents have no keys and are pointed to loopback; this is the second wall, not the first.
        print(f"{error}; the agents run beside a network that they should not use.", file=sys.stderr)
    os.execvp(sys.argv[1], sys.argv[1:])
