"""The socket that systemd listens on before a daemon runs, and passes to it; see sd_listen_fds(3).

gRPC takes no descriptor of others. So the server binds a socket beside (`runtime_directory`), the two exchange names, and
new connections reach it directly. Those that waited on the passed socket are carried to it (`rpc.backlog`).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping
from typing import Final

from toolcell._printable import printable

FIRST: Final = 3  # SD_LISTEN_FDS_START
VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
WAITING_MAX: Final = 4096
"""Connections of a backlog; Linux keeps no more on one socket, unless `somaxconn` says otherwise."""


class PassedError(Exception):
    """What was passed cannot be served; the message says why and what to do."""


def passed(
    environment: MutableMapping[str, str], pid: int, path: str, first: int = FIRST
) -> socket.socket | None:
    """Return the socket that was passed to this process, None for none; the caller closes it. Raises `PassedError`.

    Args:
        environment: The daemon's; it loses what is about the socket, which no other process may take for its own.
        pid: The daemon's.
        path: Where it is to serve.
        first: The number of the first descriptor that is passed. Default: as systemd does.
    """
    pid_text, count, _ = [environment.pop(name, "") for name in VARIABLES]
    if pid_text != str(pid):
        return None  # it was passed to a process that has started this one
    if count != "1":
        raise PassedError(f"{printable(count[:20]) or 'no'} sockets are passed; {_wanted(path)}")
    try:
        os.set_inheritable(first, False)
        found = socket.socket(fileno=first)
    except OSError as error:
        raise PassedError(f"descriptor {first} is no socket ({error.strerror}); {_wanted(path)}") from error
    if fault := _fault_of(found, path):
        found.close()
        raise PassedError(f"the socket that is passed {fault}; {_wanted(path)}")
    found.setblocking(False)
    return found


def dismiss(listener: socket.socket) -> None:
    """Close what waits on a passed socket: systemd would start a daemon that cannot serve again and again for it."""
    with contextlib.suppress(OSError):
        for _ in range(WAITING_MAX):
            listener.accept()[0].close()


def _fault_of(found: socket.socket, path: str) -> str:
    if found.family != socket.AF_UNIX or found.type != socket.SOCK_STREAM:
        return "is no stream of a unix socket"
    if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return "does not listen"
    name = os.fsdecode(found.getsockname())
    if not name.startswith("/") or os.path.realpath(name) != os.path.realpath(path):
        return f"has the name {printable(name)}"
    return ""


def _wanted(path: str) -> str:
    return f"the socket unit has to have one line, ListenStream={path}"
