"""Runs code in a confined child process, and returns its result or raises its exception."""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import Any

from toolcelld import linux
from toolcelld.sandbox import namespaces
from toolcelld.sandbox.policy import SandboxPolicy
from toolcelld.sandbox.setup import own_places

importlib.import_module(
    "encodings.idna"
)  # what a lookup needs; an unprivileged child may not be able to read it any more

SECONDS_MAX = 50
NOBODY = 65534


class Failed(Exception):
    """The child raised; the text is its traceback."""


def in_child(work: Callable[[], Any]) -> Any:
    """Run `work` in a forked process with a deadline of some seconds, and return its result."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not that of the test's own deadline
            signal.alarm(SECONDS_MAX)
            try:
                said = pickle.dumps((True, work()))
            except BaseException:  # noqa: BLE001  # it is told on the other side
                said = pickle.dumps((False, traceback.format_exc()))
            with os.fdopen(write, "wb") as file:
                file.write(said)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        said = file.read()
    _, status = os.waitpid(pid, 0)
    if not said:
        raise Failed(f"it ended with {os.waitstatus_to_exitcode(status)}, without a word")
    good, value = pickle.loads(said)  # noqa: S301  # our own child
    if not good:
        raise Failed(value)
    return value


def as_nobody(work: Callable[[], Any]) -> Callable[[], Any]:
    """Return `work` that runs as an unprivileged user, if this one is root."""

    def changed() -> Any:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            linux.set_dumpable(True)  # as after an exec; else /proc/self belongs to root
        return work()

    return changed


def apart(
    policy: SandboxPolicy,
    work: Callable[[], Any],
    *,
    scratch_bytes: int | None = None,
    processes: int | None = None,
) -> Callable[[], Any]:
    """Return `work` that runs as in a strict cell: in namespaces of its own, with the mounts of that policy."""

    def inside() -> Any:
        only_hold = namespaces.mount_view(policy, own_places(), scratch_bytes)
        if processes is not None:
            namespaces.bound_processes(processes)
        namespaces.close_view(only_hold)
        linux.drop_capabilities()
        return work()

    def outside() -> Any:
        linux.no_new_privileges()
        namespaces.enter_namespaces(host_network=False)
        return in_child(lambda: in_child(inside))  # the first child is the init of the new process namespace

    return outside
