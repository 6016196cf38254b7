"""The zygote: started by exec, single-threaded.

It has imported the modules that every worker needs, and none of a user's. The daemon controls it over one socket:

    daemon → zygote   {"type": "spawn", "id", "enclosure", "host_network"} with descriptors: life line, protocol, reports,
                      abort, stdout, stderr, and for a cell with a network of its own the handover
    zygote → daemon   {"type": "ready", "python"}
                      {"type": "spawned", "id", "pid"} with a pidfd of the keeper
                      {"type": "refused", "id", "message"}
                      {"type": "exited", "id", "status"}    no process of that cell is left

It is a subreaper: the orphans of a killed keeper become its children, and it kills every child that it did not
fork. It exits when the socket is closed; its cells have life lines of their own, and continue.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final

from toolcelld import linux
from toolcelld.sandbox.setup import ForkHooks, Plan
from toolcelld.worker import keeper
from toolcelld.worker.zygote.immortal import make_immortal
from toolcelld.worker.zygote.warm_up import warm_up

__all__ = ["main"]

MESSAGE_BYTES_MAX: Final = 4096
"""A request is a type and an id."""


def main(control: int, roots: tuple[str, ...] = (), fork_hooks: Sequence[ForkHooks] = ()) -> None:
    """Fork keepers until the daemon closes the socket.

    Args:
        control: The descriptor of the socket to the daemon.
        roots: The directories that Toolcell's packages are imported from.
        fork_hooks: What modules registered to be called around a fork; run in workers only.
    """
    _Zygote(socket.socket(fileno=control), roots, fork_hooks).run()


def _wake(*_: object) -> None:
    """A signal handler that does nothing: the wake-up descriptor interrupts `poll`."""


class _Zygote:
    def __init__(
        self, control: socket.socket, roots: tuple[str, ...], fork_hooks: Sequence[ForkHooks]
    ) -> None:
        self._control = control
        self._roots = roots
        self._fork_hooks = fork_hooks
        self._keepers: dict[int, str] = {}
        self._woken, self._waker = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK
        )
        linux.subreaper()
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        linux.drop_bounding_set()
        warm_up()
        # Objects that exist now exist in every worker. Neither the garbage collector nor counts of references may write
        # to them there, as the kernel would copy their pages.
        gc.collect()
        make_immortal()
        gc.freeze()

    def run(self) -> None:
        self._send({"type": "ready", "python": sys.version.split()[0]})
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._woken.fileno():
                    self._woken.recv(4096)
                    self._reap()
                elif not self._handle_request():
                    return

    def _handle_request(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 8)
        except ConnectionError:
            return False
        if not data:
            return False
        request = json.loads(data)
        cell_id = request["id"]
        plan = Plan(
            descriptors=descriptors,
            zygote_pid=os.getpid(),
            enclosure=request["enclosure"],
            host_network=request["host_network"],
            roots=self._roots,
            fork_hooks=self._fork_hooks,
            imported_last=next(reversed(sys.modules)),
        )
        try:
            pid = os.fork()
        except OSError as error:
            self._send({"type": "refused", "id": cell_id, "message": f"fork: {error.strerror}"})
        else:
            if pid == 0:
                gc.enable()
                keeper.keep(plan)
            self._keepers[pid] = cell_id
            pidfd = os.pidfd_open(pid)
            self._send({"type": "spawned", "id": cell_id, "pid": pid}, pidfd)
            os.close(pidfd)
        for number in descriptors:
            os.close(number)
        return True

    def _reap(self) -> None:
        ended: list[tuple[str, int]] = []
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if (cell_id := self._keepers.pop(pid, None)) is not None:
                    ended.append((cell_id, status))
                self._kill_orphans()
        for cell_id, status in ended:
            self._send({"type": "exited", "id": cell_id, "status": status})

    def _kill_orphans(self) -> None:
        while orphans := keeper.children(os.getpid()) - self._keepers.keys():
            keeper.kill_all(scoped=False, spare=self._keepers)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _send(self, message: dict[str, Any], *descriptors: int) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            # The next read returns the end of the stream
            socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)
