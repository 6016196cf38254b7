"""The steps that confine a process between its fork and the user's file, as ordered lists.

The order is the security argument, so it is defined once, here, each step with its reason; the keeper and the worker only
run the lists.
Steps 1 to 6 do not depend on the tool, so cells are prepared up to step 6 ahead of need.

1.  A new session and default signal handlers, so that no terminal and no setting of the parent has an effect.
2.  Descriptors at fixed numbers; all others are closed, so that none leaks.
3.  The barrier: wait for the daemon, which answers after it has moved the cell into its control group. Without the
    barrier the process could fork before it is moved.
4.  `strict`: new namespaces, entered before any other process of the cell exists; the end of its init is the end of all
    that is in its process namespace. Then no-new-privileges, and without namespaces a Landlock domain with the signal
    scope only, so that the keeper's `kill(-1)` reaches exactly its own tree. This scope is a way to kill and not a policy,
    so `none` has it, too. It is verified before use: a signal to the zygote must be refused.
5.  The fork of the worker (in `keeper`; in `strict` its parent is the init of the cell). The worker dies with its parent,
    has a session and a lower priority than the processes that can stop it, which do not wait for the processor behind all
    that it forks, and is ended before them where the machine's memory runs out.
6.  The worker sends `hello` and waits for `become`.
7.  `strict`: the mount namespace, before access to files is restricted. Then the environment from the setup alone, the
    working directory, the sockets of a network of some hosts (the daemon accepts on them; ports below 1024 need a
    capability), resource limits that the worker cannot raise, and no capabilities, which no later step needs.
8.  The file policy, by Landlock. It also keeps the worker from signalling its keeper; without a policy it does only that.
    With a guarded directory the worker forks here: the parent stays as the guard, within this policy, and the child goes
    on as the worker, under one more policy, which takes from it what the guard does for it (`guard`).
9.  The system-call filter, last, because earlier steps need calls that it refuses; then the one that asks the guard.
10. The worker reports the layers, and only then runs the user's file.

Every step returns the name of the layer that it applied, or None. An exception from a step ends the start; the tool
never runs in a partly confined cell.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from toolcell._paths import is_below
from toolcelld import linux
from toolcelld.sandbox import landlock, namespaces, own_network
from toolcelld.sandbox.guard.names import NamePatterns, Protected
from toolcelld.sandbox.guard.operations import Operations
from toolcelld.sandbox.guard.process import AskingFilter, stand_guard
from toolcelld.sandbox.policy import PROCESSES_MARGIN, CellLimits, Enclosure, PythonSetup, SandboxPolicy
from toolcelld.sandbox.system_calls import denied_syscalls, seccomp

LIFE: Final = 3
"""The keeper's life line: a socket to the daemon, whose end of file ends the cell."""
PROTOCOL: Final = 4
"""The socket of the daemon's frames; the worker can only read from it."""
ABORT: Final = 5
"""The worker's abort channel; the worker can only read from it."""
REPORTS: Final = 6
"""The pipe of the worker's frames. A pipe carries no descriptors: one that the daemon gets is one that it has to close,
and closing a socket can take as long as its sender likes."""
HANDOVER: Final = 7
"""The socket over which a cell with a network of its own hands over its listeners; closed before code of the user runs."""

NICE: Final = 5
"""How far the priority of a cell's processes is below that of its keeper and of the daemon, which stop them; it counts
between the processes of one cpu group."""
PROCESSES_OF_OTHERS: Final = 1024
"""How many the user's other programs may start later, where a limit counts them too."""
FIRST_TO_END: Final = b"1000"
"""The highest `oom_score_adj`: of memory that belongs to no process, such as the buffers of pipes and sockets, no limit
can be measured, so a cell that takes all of it is to end before the daemon and the user's programs do."""
SIGNALS_MAX: Final = 512
"""Timers and queued signals of a cell; the kernel counts them for the user, who has about 4 for each MiB of memory."""

ABORT_SIGNAL: Final = signal.SIGRTMIN + 1
"""Sent by the keeper to make the worker read its abort channel. A real-time signal, which libraries do not use."""


ForkHooks: TypeAlias = Mapping[str, "Callable[..., Any] | None"]
"""The arguments of `os.register_at_fork`."""


class SetupFailed(Exception):
    """A step failed; the message names the step."""


@dataclass(frozen=True, slots=True)
class CellSetup:
    """The parameters of a cell, from the `become` message."""

    directory: str
    environment: Mapping[str, str]
    limits: CellLimits
    memory_held: bool
    """Whether a control group limits its memory, which also counts memory files."""
    policy: SandboxPolicy
    tmpdir: str
    """Its private temporary directory, created by the daemon; in `strict` it is /tmp. Empty for none."""
    imported_in: str = ""
    """The directory in which the file is loaded; empty for that of the calls."""
    project: str = ""
    """The directory whose files are reported when they are imported; empty for none."""
    python: PythonSetup | None = None
    """The packages or the interpreter in place of Toolcell's own."""

    @property
    def memory_files(self) -> bool:
        """Whether `memfd_create` is allowed: its pages are counted by a control group only."""
        return self.memory_held or self.limits.memory_bytes is None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CellSetup:
        """Read the payload of `become`."""
        return cls(
            directory=values["directory"],
            environment=values["environment"],
            limits=CellLimits(**values["limits"]),
            memory_held=values["memory_held"],
            policy=SandboxPolicy.from_json(values["policy"]),
            tmpdir=values["scratch"],
            imported_in=values.get("imported_in", ""),
            project=values.get("project", ""),
            python=PythonSetup.from_json(values["python"]) if values.get("python") else None,
        )


@dataclass(slots=True)
class CellPlan:
    """A cell under construction: its inputs and what has been done so far."""

    # Life line, protocol, abort, stdout, stderr[, handover]: as the zygote received them
    descriptors: Sequence[int]
    zygote_pid: int
    enclosure: Enclosure = "none"
    host_network: bool = False  # of the namespaces of a strict cell none for the network
    parent_pid: int = 0
    """The process whose death ends this one, by its number in this PID namespace."""
    setup: CellSetup | None = None
    scoped: bool = False  # the keeper's signal scope holds, so one kill(-1) ends the cell
    layers: list[str] = field(default_factory=list[str])
    roots: tuple[str, ...] = ()
    """The directories that Toolcell's packages are imported from."""
    fork_hooks: Sequence[ForkHooks] = ()
    """What imported modules have to do after a fork. Only the worker runs it: the locks and random numbers of the keeper
    and of init are not used, and the hooks of the standard library write to 200 pages that are shared until then."""
    asking: AskingFilter | None = None
    """The worker's side of its guard; None without one."""
    only_hold: Sequence[str] = ()
    """Mounts of a strict cell in which nothing is written once its view is complete."""
    imported_last: str = ""
    """The module that the zygote imported last; empty in an interpreter that has no zygote."""

    @property
    def apart(self) -> bool:
        """Whether the cell has namespaces of its own."""
        return self.enclosure == "strict"

    @property
    def can_scope(self) -> bool:
        """Whether a process of the cell can be kept from signalling the others."""
        return self.scoped or (self.apart and linux.landlock_abi() >= linux.LANDLOCK_ABI_SIGNAL)


Step: TypeAlias = Callable[[CellPlan], str | None]


def walk(steps: Sequence[Step], plan: CellPlan) -> None:
    """Run the steps in order. Raises `SetupFailed` with the name of the step that failed."""
    for step in steps:
        try:
            layer = step(plan)
        except (OSError, ValueError) as error:
            raise SetupFailed(f"{step.__name__.replace('_', ' ').strip()}: {error}") from error
        if layer is not None:
            plan.layers.append(layer)


def _own_session(plan: CellPlan) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    plan.parent_pid = os.getpid()


def _descriptors(plan: CellPlan) -> None:
    import fcntl

    # Duplicate to high numbers first: a source may have the number of another one's target.
    high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 64) for number in plan.descriptors]
    life, protocol, reports, abort, stdout, stderr, *handover = high
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for source, target in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target, inheritable=True)
    own = [(life, LIFE), (protocol, PROTOCOL), (abort, ABORT), (reports, REPORTS)]
    own += [(each, HANDOVER) for each in handover]
    for source, target in own:
        os.dup2(source, target, inheritable=False)
    os.closerange(LIFE + len(own), os.sysconf("SC_OPEN_MAX"))


def default_signals() -> None:
    """Give a worker the defaults of the signals that its keeper ignores; SIGXFSZ stays ignored, as Python has it."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, *linux.UNUSED_SIGNALS):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def open_nothing() -> None:
    """Open descriptor 0 anew, on /dev/null."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)


def open_standard_streams() -> None:
    """Open the streams of Python on the descriptors 0 to 2, as every worker has them."""
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # stays open until the process exits
    # Line buffered, so that output appears as the tool prints it.
    sys.stdout = open(1, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  # as stdin
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115  # as stdin
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]  # typed as final


def _barrier(_: CellPlan) -> None:
    with socket.socket(fileno=os.dup(LIFE)) as life:
        if life.recv(16) != b"go":
            raise SystemExit(0)  # the daemon has exited, or no longer needs this cell


def _namespaces(plan: CellPlan) -> str | None:
    if not plan.apart:
        return None
    namespaces.enter_namespaces(host_network=plan.host_network)
    return f"user, {'' if plan.host_network else 'network, '}ipc and process namespaces"


def _view(plan: CellPlan) -> str | None:
    assert plan.setup is not None
    policy, limits = plan.setup.policy, plan.setup.limits
    if policy.enclosure != "strict":
        return None
    plan.only_hold = namespaces.mount_view(policy, own_places(), limits.disk_bytes)
    open_nothing()  # not the host's any more, whose mode and times its owner could change: the one in the view is read-only
    return "mount namespace"


def _close_view(plan: CellPlan) -> None:
    namespaces.close_view(plan.only_hold)


def _surroundings(plan: CellPlan) -> None:
    assert plan.setup is not None
    os.environ.clear()
    os.environ.update(plan.setup.environment)
    if plan.setup.tmpdir:
        os.environ["TMPDIR"] = plan.setup.tmpdir
    time.tzset()
    os.umask(plan.setup.policy.umask)
    os.chdir(plan.setup.directory)


def _enclosure(plan: CellPlan) -> str | None:
    linux.no_new_privileges()
    linux.subreaper()
    if plan.apart or linux.landlock_abi() < linux.LANDLOCK_ABI_SIGNAL:
        return "no-new-privileges"  # this domain would refuse renames between directories, or else the mounts of step 7
    linux.restrict_signals(renames=plan.enclosure == "baseline")
    try:
        os.kill(plan.zygote_pid, 0)
    except OSError as error:
        # ESRCH: the zygote has exited. The domain was entered without an error, but its scope is not verified.
        if error.errno not in (errno.EPERM, errno.ESRCH):
            raise
        plan.scoped = error.errno == errno.EPERM
    return "no-new-privileges, signal scope" if plan.scoped else "no-new-privileges"


def _tie_to_parent(plan: CellPlan) -> None:
    linux.die_with_parent(signal.SIGKILL)
    if os.getppid() != plan.parent_pid:
        raise SystemExit(0)  # the parent died before prctl


def _pids(plan: CellPlan) -> str | None:
    assert plan.setup is not None
    processes = plan.setup.limits.processes
    if not plan.apart or processes is None:
        return None
    return namespaces.bound_processes(processes + PROCESSES_MARGIN)


def _ahead(_: CellPlan) -> None:
    linux.schedule_ahead(session=True)


def _behind(_: CellPlan) -> None:
    os.setsid()
    os.nice(NICE)


def _first_to_end(_: CellPlan) -> None:
    with (
        contextlib.suppress(OSError),  # where a container has /proc read-only
        open("/proc/self/oom_score_adj", "wb", buffering=0) as file,
    ):
        file.write(FIRST_TO_END)


def _names(plan: CellPlan) -> str | None:
    assert plan.setup is not None
    if plan.setup.policy.network != "proxy" or plan.setup.policy.enclosure != "strict":
        return None
    own_network.mount_names()
    return "names of its own"


def _handover(plan: CellPlan) -> str | None:
    """Open the sockets of the cell's own network and hand them over; close the channel, also where there are none."""
    assert plan.setup is not None
    policy = plan.setup.policy
    if not plan.apart or plan.host_network:
        if policy.network == "proxy":
            raise ValueError("a network of some hosts needs namespaces; the sandbox must be strict")
        if plan.apart and policy.network != "open":
            raise ValueError(
                "the cell was made with the network of the host, and its policy does not grant it"
            )
        return None
    with socket.socket(fileno=HANDOVER) as channel:
        if policy.network == "none":
            return None
        if policy.network == "open":
            raise ValueError("the cell was made without the network of the host, and its policy grants it")
        os.environ.update(own_network.hand_over(channel, policy.ports))
    return f"listeners on {len(policy.ports)} ports"


def _limits(plan: CellPlan) -> str:
    assert plan.setup is not None
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for what, value in (
        (resource.RLIMIT_NPROC, _processes_of_user(plan)),
        (resource.RLIMIT_SIGPENDING, SIGNALS_MAX),
        (resource.RLIMIT_NOFILE, plan.setup.limits.open_files),
        (resource.RLIMIT_FSIZE, plan.setup.limits.file_size_bytes),
    ):
        if value is not None:
            _, hard = resource.getrlimit(what)
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(what, (bound, bound))
    return "resource limits"


def _processes_of_user(plan: CellPlan) -> int | None:
    """Return the limit on the processes and threads of the user; the kernel does not hold root to it."""
    assert plan.setup is not None
    if (processes := plan.setup.limits.processes) is None:
        return None
    if plan.apart:
        return processes + PROCESSES_MARGIN
    # Without a user namespace it counts all of the user's. What runs now is at most what the machine runs.
    with open("/proc/loadavg", encoding="ascii") as file:
        now = int(file.read().split()[3].partition("/")[2])
    return now + processes + PROCESSES_OF_OTHERS


def _capabilities(_: CellPlan) -> str:
    linux.drop_capabilities()
    return "no capabilities"


def _files(plan: CellPlan) -> str | None:
    assert plan.setup is not None
    policy = plan.setup.policy
    if policy.enclosure != "none":
        domain = landlock.domain(_executing(plan), own_places(), plan.setup.tmpdir)
        layer = landlock.enter(domain.with_processes() if policy.guarded else domain)
        _forget_closed_programs()
        return layer
    if not plan.scoped:
        return None
    linux.restrict_signals()
    return "keeper out of reach"


def _executing(plan: CellPlan) -> SandboxPolicy:
    """Return the policy with the right to execute programs where one is executed in the complete cell: see `sole_exec`."""
    assert plan.setup is not None
    policy, python = plan.setup.policy, plan.setup.python
    return replace(policy, execute=True) if python is not None and python.program else policy


def _guard(plan: CellPlan) -> str | None:
    """Fork. The parent stays as the guard, and this returns in the child."""
    assert plan.setup is not None
    policy = plan.setup.policy
    if not policy.guarded:
        return None
    if policy.enclosure == "none":
        raise ValueError("a guard needs a policy of files")
    tmpdir = plan.setup.tmpdir
    free = [*policy.granted, *([tmpdir] if tmpdir and is_below(tmpdir, policy.guarded) else [])]
    domain, places = landlock.domain(_executing(plan), own_places(), tmpdir).guarded(policy.guarded)
    plan.asking = stand_guard(
        lambda listener: Operations(
            listener,
            places,
            Protected(policy.guarded, NamePatterns.of(policy.names), free, policy.protected),
            executions=0 if policy.execute else 1,
        ),
        abort_signal=ABORT_SIGNAL,
    )
    landlock.enter(domain)
    return "protected names refused"


def _ask(plan: CellPlan) -> None:
    """Load the filter that asks the guard."""
    assert plan.setup is not None
    if plan.asking is None:
        return
    plan.asking.begin(executes=_executing(plan) == plan.setup.policy)


def _forget_closed_programs() -> None:
    """Remove inaccessible directories from PATH: `stat` still works there, so a shell would stop at a program it cannot run."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    # An empty entry would mean the working directory.
    os.environ["PATH"] = os.pathsep.join(filter(_is_open, places)) or os.defpath


def _is_open(directory: str) -> bool:
    try:
        os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _system_calls(plan: CellPlan) -> str | None:
    assert plan.setup is not None
    if plan.setup.policy.enclosure == "none":
        return None
    return seccomp.load(denied_syscalls.filter_of(_executing(plan), memory_files=plan.setup.memory_files))


@functools.cache  # evaluated once, in the zygote
def own_places() -> tuple[str, ...]:
    """Return the resolved paths that the interpreter and Toolcell's code must be able to read."""
    places = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)), *sys.path]
    return tuple(
        dict.fromkeys(os.path.realpath(place) for place in places if place and os.path.exists(place))
    )


AROUND: Final[Sequence[Step]] = (_own_session, _ahead, _descriptors, _barrier, _namespaces, _enclosure)
"""Run by the keeper before it forks the worker."""

BORN: Final[Sequence[Step]] = (_tie_to_parent, _first_to_end)
"""Run by init and by the worker."""

BEHIND: Final[Sequence[Step]] = (_behind,)
"""Run by the worker before it sends `hello`."""

WANTED: Final[Sequence[Step]] = (
    _view,
    _pids,
    _names,
    _close_view,
    _surroundings,
    _handover,
    _limits,
    _capabilities,
    _files,
    _guard,
    _system_calls,
    _ask,
)
"""Run by the worker after `become`, before it runs the user's file."""
