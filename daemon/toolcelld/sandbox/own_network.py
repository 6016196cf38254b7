"""The network of a strict cell that may reach some hosts, as far as it is in the cell.

The cell's only interface is its loopback. It opens a socket for questions for names, a listener for each granted port and
one for the proxy, and hands them to the daemon, which serves them outside of the cell (`toolcelld.network`). What the C
library reads to find a name server is replaced by files that name the cell's own. The cell keeps no copy of a socket:
who could set options on a listener would set them for the connections that the daemon accepts.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from toolcelld import linux
from toolcelld.sandbox.policy import HANDOVER_BATCH_MAX

LOOPBACK: Final = "127.0.0.1"
ANY: Final = "0.0.0.0"  # noqa: S104  # of the cell's own network, whose interface is a loopback
NAME_SERVER_PORT: Final = 53
RESOLVER: Final = "/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:5 attempts:2\n"
HOSTS: Final = "/etc/hosts", "127.0.0.1 localhost {name}\n::1 localhost ip6-localhost ip6-loopback\n"
"""Without the names of the host's file, so that a granted one gets an address that leads somewhere."""
DRAFT: Final = "/tmp/toolcell-names"  # noqa: S108  # of the cell alone, and removed before its code runs
BACKLOG: Final = 128
NO_PROXY: Final = "localhost,127.0.0.1"
"""Servers of the cell itself; a granted port of the host's loopback is served by its listener."""


def mount_names() -> None:
    """Mount the files that say where names are resolved; after the other mounts of a strict cell."""
    for path, text in (RESOLVER, HOSTS):
        with open(DRAFT, "x", encoding="ascii", errors="replace", opener=_readable) as file:
            file.write(text.format(name=socket.gethostname()))
        tree = linux.open_tree(DRAFT)
        try:
            linux.set_read_only(tree)
            target = os.path.realpath(path)  # often a link into /run, which is empty here
            if not os.path.exists(target):
                # Where it cannot be made it does not exist: then the C library asks 127.0.0.1 too.
                with contextlib.suppress(OSError):
                    os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
                    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            if os.path.exists(target):
                linux.move_mount(tree, target)
        finally:
            os.close(tree)
            os.unlink(DRAFT)


def _readable(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o644)


def hand_over(channel: socket.socket, ports: Sequence[int]) -> Mapping[str, str]:
    """Open the sockets, send them over the channel, and close them.

    Args:
        channel: Where the daemon receives them.
        ports: The granted ports.

    Returns:
        The variables by which clients find the proxy.
    """
    with ExitStack() as ours:
        questions = ours.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        questions.bind((LOOPBACK, NAME_SERVER_PORT))
        proxy = ours.enter_context(socket.create_server((LOOPBACK, 0), backlog=BACKLOG))
        listeners = [ours.enter_context(socket.create_server((ANY, port), backlog=BACKLOG)) for port in ports]
        numbers = [each.fileno() for each in (questions, proxy, *listeners)]
        for start in range(0, len(numbers), HANDOVER_BATCH_MAX):
            socket.send_fds(channel, [b"sockets"], numbers[start : start + HANDOVER_BATCH_MAX])
        address = f"http://{LOOPBACK}:{proxy.getsockname()[1]}"
    variables = {"no_proxy": NO_PROXY} | dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), address)
    return variables | {name.upper(): value for name, value in variables.items()}
