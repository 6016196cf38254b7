"""What happens to a process between its fork and the user's file, as lists in order.

The order is the security argument, so it is written down once, here; `keeper` and `serve` only walk it.
Steps 1 to 6 do not depend on what the cell is for, so cells are built up to there ahead of need.

1.  A session of its own, default signals: nothing a terminal or a parent arranged reaches in.
2.  Descriptors at fixed numbers, everything else closed: what is not open cannot leak.
3.  The barrier: wait for the daemon's word, which comes when the cell is in its control group.
    A process that is placed after its start may have forked out of the group by then.
4.  `strict`: namespaces of its own, entered before anything below exists. Then the enclosure: no
    new privileges, and a Landlock domain that has only the signal scope, so that the keeper's
    `kill(-1)` hits exactly its own tree. It is a means to kill and no policy, which is why it
    stands here, in every profile, and is proven before it is relied upon: a signal to the zygote
    must be refused.
5.  The fork of the worker (in `keeper`; in `strict` its parent is the cell's own first process),
    which dies with its parent.
6.  The worker says hello and waits for what it is wanted for (in `serve`).
7.  `strict`: the view, which is made of mounts and so comes before the files are closed off.
    Environment from the wish alone, the working directory, the listener of the proxy, which the
    daemon accepts on, resource limits, which the worker
    cannot raise again; and no capabilities, which nothing after this needs.
8.  The policy on files, by Landlock; it also keeps the worker from signalling its own keeper, and
    is that alone where there is no policy.
9.  The system-call filter, last, because everything before needs calls that it refuses.
10. The layers are reported (in `serve`), and only then is the user's file run.

Every step returns the name of the layer it put on, or nothing. Whatever a step raises ends the
start; the tool never runs in half a cell.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from toolcelld.worker import landlock, linux, namespaces, refusals, seccomp
from toolcelld.worker.policy import PROCESSES_MARGIN, CellLimits, Policy

__all__ = [
    "ABORT", "ABORT_SIGNAL", "AROUND", "BORN", "LIFE", "PROTOCOL", "WANTED", "Plan", "SetupFailed", "Wish", "own_places",
    "walk",
]  # fmt: skip

LIFE: Final = 3
"""The keeper's line to the daemon."""
PROTOCOL: Final = 4
"""The worker's frames."""
ABORT: Final = 5
"""The worker's abort channel."""

ABORT_SIGNAL: Final = signal.SIGRTMIN + 1
"""What the keeper sends to have the worker look at its abort channel; real-time, so that no library uses it."""


class SetupFailed(Exception):
    """A step could not be taken; the message names it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a cell is wanted for."""

    directory: str
    environment: Mapping[str, str]
    limits: CellLimits
    memory_held: bool
    """Whether a control group holds its memory to the limit: then no file in memory gets out of the count."""
    policy: Policy
    scratch: str
    """Its private temporary directory, made by the daemon; in `strict` it is /tmp. Empty where there is none."""

    @property
    def memory_files(self) -> bool:
        """Whether files in memory may be made: what is in one is in no process's count, only in a group's."""
        return self.memory_held or self.limits.memory_bytes is None

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> Wish:
        """What `become` carried."""
        return cls(
            directory=values["directory"],
            environment=values["environment"],
            limits=CellLimits(**values["limits"]),
            memory_held=values["memory_held"],
            policy=Policy.from_wire(values["policy"]),
            scratch=values["scratch"],
        )


@dataclass(slots=True)
class Plan:
    """A cell that is being built: what it is built from, and what has been done."""

    descriptors: Sequence[int]  # life line, protocol, abort, stdout, stderr: as the zygote received them
    zygote_pid: int
    apart: bool = False  # in namespaces of its own, as `strict` wants
    parent_pid: int = 0
    """Whom the process that is being built dies with, as it sees it."""
    wish: Wish | None = None
    scoped: bool = False  # the signal scope holds, so one kill(-1) ends the cell
    layers: list[str] = field(default_factory=list[str])


Step: TypeAlias = Callable[[Plan], str | None]


def walk(steps: Sequence[Step], plan: Plan) -> None:
    """Take every step in order, or raise `SetupFailed` naming the one that could not be taken."""
    for step in steps:
        try:
            layer = step(plan)
        except (OSError, ValueError) as error:
            raise SetupFailed(f"{step.__name__.replace('_', ' ').strip()}: {error}") from error
        if layer is not None:
            plan.layers.append(layer)


def _own_session(plan: Plan) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    plan.parent_pid = os.getpid()


def _descriptors(plan: Plan) -> None:
    import fcntl

    # Out of the way first: a source may stand at another one's target.
    high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 64) for number in plan.descriptors]
    life, protocol, abort, stdout, stderr = high
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for source, target in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target, inheritable=True)
    for source, target in ((life, LIFE), (protocol, PROTOCOL), (abort, ABORT)):
        os.dup2(source, target, inheritable=False)
    os.closerange(ABORT + 1, os.sysconf("SC_OPEN_MAX"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # open as long as the process
    # Line by line, so that what a tool prints is seen as it comes.
    sys.stdout = open(1, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  # as stdin
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  # as stdin
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]  # they are final for users, not for who makes the process


def _barrier(_: Plan) -> None:
    with socket.socket(fileno=os.dup(LIFE)) as life:
        if life.recv(16) != b"go":
            raise SystemExit(0)  # the daemon is gone, or does not want this cell any more


def _namespaces(plan: Plan) -> str | None:
    if not plan.apart:
        return None
    namespaces.split_off()
    return "user, network, ipc and process namespaces"


def _view(plan: Plan) -> str | None:
    assert plan.wish is not None
    policy, limits = plan.wish.policy, plan.wish.limits
    if policy.enclosure != "strict":
        return None
    namespaces.furnish(policy, own_places(), limits.disk_bytes)
    return "mount namespace"


def _surroundings(plan: Plan) -> None:
    assert plan.wish is not None
    os.environ.clear()
    os.environ.update(plan.wish.environment)
    if plan.wish.scratch:
        os.environ["TMPDIR"] = plan.wish.scratch
    time.tzset()
    os.umask(0o077)
    os.chdir(plan.wish.directory)


def _enclosure(plan: Plan) -> str | None:
    linux.no_new_privileges()
    linux.subreaper()
    if linux.landlock_abi() < linux.LANDLOCK_ABI_SIGNAL:
        return "no-new-privileges"
    linux.restrict_signals()
    try:
        os.kill(plan.zygote_pid, 0)
    except OSError as error:
        # ESRCH: the zygote is gone. Then nothing is proven, but the domain was entered without an error.
        if error.errno not in (errno.EPERM, errno.ESRCH):
            raise
        plan.scoped = error.errno == errno.EPERM
    return "no-new-privileges, signal scope" if plan.scoped else "no-new-privileges"


def _tie_to_parent(plan: Plan) -> None:
    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() != plan.parent_pid:
        raise SystemExit(0)  # it died before the kernel was told


def _way_out(plan: Plan) -> str | None:
    assert plan.wish is not None
    if plan.wish.policy.network != "proxy":
        return None
    if not plan.apart:
        raise ValueError("a network of some hosts needs namespaces; the sandbox must be strict")
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(fileno=os.dup(ABORT)) as channel:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        socket.send_fds(channel, [b"proxy"], [listener.fileno()])
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        os.environ[name] = os.environ[name.upper()] = address
    home = ("localhost", "127.0.0.1")
    # What the tool serves to itself needs no proxy; what the host serves there does, if it was granted.
    if not any(host.partition(":")[0] in home for host in plan.wish.policy.hosts):
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(home)
    return "proxy"


def _limits(plan: Plan) -> str:
    assert plan.wish is not None
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Elsewhere it would count all of the user's processes, the daemon's and the desktop's too.
    processes = plan.wish.limits.processes if plan.apart else None
    for what, value in (
        (resource.RLIMIT_NPROC, None if processes is None else processes + PROCESSES_MARGIN),
        (resource.RLIMIT_NOFILE, plan.wish.limits.open_files),
        (resource.RLIMIT_FSIZE, plan.wish.limits.file_size_bytes),
    ):
        if value is not None:
            _, hard = resource.getrlimit(what)
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(what, (bound, bound))
    return "resource limits"


def _capabilities(_: Plan) -> str:
    linux.drop_capabilities()
    return "no capabilities"


def _files(plan: Plan) -> str | None:
    assert plan.wish is not None
    policy = plan.wish.policy
    if policy.enclosure != "none":
        layer = landlock.enter(landlock.domain(policy, own_places(), plan.wish.scratch))
        _forget_closed_programs()
        return layer
    if not plan.scoped:
        return None
    linux.restrict_signals()
    return "keeper out of reach"


def _forget_closed_programs() -> None:
    """Take from PATH what is closed now: a shell would find a program there, by `stat`, and look no further."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    # An empty one would be the working directory.
    os.environ["PATH"] = os.pathsep.join(filter(_is_open, places)) or os.defpath


def _is_open(directory: str) -> bool:
    try:
        os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _system_calls(plan: Plan) -> str | None:
    assert plan.wish is not None
    if plan.wish.policy.enclosure == "none":
        return None
    return seccomp.load(refusals.filter_of(plan.wish.policy, memory_files=plan.wish.memory_files))


@functools.cache  # found out once, in the zygote
def own_places() -> tuple[str, ...]:
    """What the interpreter and our own code need to be able to read, by their real names."""
    places = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)), *sys.path]
    return tuple(
        dict.fromkeys(os.path.realpath(place) for place in places if place and os.path.exists(place))
    )


AROUND: Final[Sequence[Step]] = (_own_session, _descriptors, _barrier, _namespaces, _enclosure)
"""What the keeper does before it forks the worker."""

BORN: Final[Sequence[Step]] = (_tie_to_parent,)
"""What the worker does before it says hello."""

WANTED: Final[Sequence[Step]] = (
    _view,
    _surroundings,
    _way_out,
    _limits,
    _capabilities,
    _files,
    _system_calls,
)
"""What the worker does when it knows what it is for, before it runs the user's file."""
