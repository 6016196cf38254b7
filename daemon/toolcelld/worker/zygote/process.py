"""The zygote: started by exec, single-threaded.

It has imported the modules that every worker needs, and none of a user's. The daemon controls it over one socket:

    daemon → zygote   {"type": "spawn", "id", "enclosure", "host_network"} with descriptors: life line, protocol, reports,
                      abort, stdout, stderr, and for a cell with a network of its own the handover
    zygote → daemon   {"type": "ready", "python"}
                      {"type": "spawned", "id", "pid"} with a pidfd of the keeper
                      {"type": "refused", "id", "message"}
                      {"type": "exited", "id", "left"}      so many processes of that cell are left, mostly none

It is a subreaper: the orphans of a killed keeper become its children, and it kills every child that it did not
fork. The kernel may hold a killed process for as long as a device, a file system or a debugger likes, so no orphan is
waited for: the loop serves other cells meanwhile, and after a while the cell is reported with what is left of it.
It exits when the socket is closed; its cells have life lines of their own, and continue.
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
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from toolcelld import linux, titles
from toolcelld.sandbox.policy import Enclosure
from toolcelld.sandbox.setup import CellPlan, ForkHooks
from toolcelld.worker import keeper
from toolcelld.worker.zygote.holes import fill_holes
from toolcelld.worker.zygote.immortal import is_supported, make_immortal
from toolcelld.worker.zygote.packing import pack
from toolcelld.worker.zygote.trial import Trial
from toolcelld.worker.zygote.warm_up import warm_up

MESSAGE_BYTES_MAX: Final = 4096
"""A request is a type and an id."""
REAP_SECONDS_MAX: Final = 5.0
"""A killed process is gone within milliseconds; less than the daemon waits until it replaces a silent zygote."""


def main(
    control: int, roots: tuple[str, ...] = (), fork_hooks: Sequence[ForkHooks] = (), *, immortal: bool = False
) -> None:
    """Fork keepers until the daemon closes the socket.

    Args:
        control: The descriptor of the socket to the daemon.
        roots: The directories that Toolcell's packages are imported from.
        fork_hooks: What modules registered to be called around a fork; run in workers only.
        immortal: Whether to make the objects immortal that all workers share; default: no.
    """
    _Zygote(socket.socket(fileno=control), roots, fork_hooks, immortal=immortal).run()


def _wake(*_: object) -> None:
    """A signal handler that does nothing: the wake-up descriptor interrupts `poll`."""


@dataclass(slots=True)
class _Ending:
    """A cell whose keeper has exited."""

    cell_id: str
    deadline: float
    orphans: set[int] = field(default_factory=set[int])
    """What was below its keeper and is not reaped; where several cells end at once, that of all of them."""


class _Zygote:
    def __init__(
        self,
        control: socket.socket,
        roots: tuple[str, ...],
        fork_hooks: Sequence[ForkHooks],
        *,
        immortal: bool,
    ) -> None:
        self._control = control
        self._roots = roots
        self._fork_hooks = fork_hooks
        self._keepers: dict[int, str] = {}
        self._endings: list[_Ending] = []
        self._killed: set[int] = set()  # and not reaped
        self._woken, self._waker = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK
        )
        titles.set_title("zygote")
        linux.subreaper()
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        for number in (signal.SIGINT, signal.SIGHUP, *linux.UNUSED_SIGNALS):
            signal.signal(number, signal.SIG_IGN)  # keepers inherit it; a worker has the defaults
        linux.drop_bounding_set()
        warm_up()
        immortal = immortal and is_supported()
        trial = Trial(self._try_cell) if immortal else None
        # Objects that exist now exist in every worker. Neither the garbage collector nor counts of references should
        # write to them there, as the kernel would copy their pages. Nor are other objects put between them.
        gc.collect()
        self._kept: list[object] = [fill_holes()]
        if trial is not None:
            self._kept.append(pack(trial.entered()))
            make_immortal()
            self._kept.append(fill_holes())  # what was freed meanwhile
        gc.freeze()

    def run(self) -> None:
        self._send({"type": "ready", "python": sys.version.split()[0]})
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll(self._pause_milliseconds()):
                if descriptor == self._woken.fileno():
                    self._woken.recv(4096)
                    self._reap()
                elif not self._handle_request():
                    return
            self._report_endings()

    def _handle_request(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 8)
        except ConnectionError:
            return False
        if not data:
            return False
        request = json.loads(data)
        cell_id = request["id"]
        plan = self._plan(descriptors, request["enclosure"], host_network=request["host_network"])
        try:
            pid = os.fork()
        except OSError as error:
            self._send({"type": "refused", "id": cell_id, "message": f"fork: {error.strerror}"})
        else:
            if pid == 0:
                gc.enable()
                titles.set_title("keeper", cell_id)
                keeper.keep(plan)
            self._keepers[pid] = cell_id
            pidfd = os.pidfd_open(pid)
            self._send({"type": "spawned", "id": cell_id, "pid": pid}, pidfd)
            os.close(pidfd)
        for number in descriptors:
            os.close(number)
        return True

    def _plan(
        self, descriptors: Sequence[int], enclosure: Enclosure, *, host_network: bool = False
    ) -> CellPlan:
        return CellPlan(
            descriptors=descriptors,
            zygote_pid=os.getpid(),
            enclosure=enclosure,
            host_network=host_network,
            roots=self._roots,
            fork_hooks=self._fork_hooks,
            imported_last=next(reversed(sys.modules)),
        )

    def _try_cell(self, descriptors: Sequence[int], enclosure: Enclosure) -> NoReturn:
        keeper.keep(self._plan(descriptors, enclosure))

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._killed.discard(pid)
                for ending in self._endings:
                    ending.orphans.discard(pid)
                if (cell_id := self._keepers.pop(pid, None)) is not None:
                    self._endings.append(_Ending(cell_id, time.monotonic() + REAP_SECONDS_MAX))
        # The children of a process that was reaped are the zygote's by now.
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        orphans = keeper.children(os.getpid()) - self._keepers.keys() - self._killed
        if orphans:
            keeper.kill_all(scoped=False, spare=self._keepers.keys() | self._killed)
            self._killed |= orphans
            for ending in self._endings:
                ending.orphans |= orphans

    def _pause_milliseconds(self) -> float | None:
        """Return how long to wait for an event; None for as long as it takes."""
        if not self._endings:
            return None
        return max(0.0, min(ending.deadline for ending in self._endings) - time.monotonic()) * 1000

    def _report_endings(self) -> None:
        now = time.monotonic()
        ended = [ending for ending in self._endings if not ending.orphans or ending.deadline <= now]
        for ending in ended:
            self._endings.remove(ending)
            self._send({"type": "exited", "id": ending.cell_id, "left": len(ending.orphans)})

    def _send(self, message: dict[str, Any], *descriptors: int) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            # The next read returns the end of the stream
            socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)
