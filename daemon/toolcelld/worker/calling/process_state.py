"""The state of a worker's process and interpreter that a call can change, and that the next call would meet.

`ROWS` is the table of it, in the order in which a row is put back: each has a name, how its value is taken, and how it is put
back. What the import of the file has left is the state that every call begins with.

Some rows are looked at where a tool has imported the module that changes them: the zygote forgets that it has imported it
(`warm_up`, `MODULES`). To read the limits alone takes longer than all other rows that are looked at before the result.

A row that cannot be put back with certainty is looked at before the result, because then the worker is replaced and the
outcome has to say so. All others are put back after the result, so that the call does not wait for it. Nearly all calls
change nothing, so a row says whether it is changed without a copy of its value.

Module state is not in the table: variables and imported modules, the levels of loggers other than the root, generators of
random numbers. It is the file's own, and `isolation` says which calls share it.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found, unused-ignore]  # signal.getsignal() makes an enum member of each result, which takes longer than all the rest
import contextlib
import faulthandler
import fcntl
import gc
import io
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from toolcelld.linux import io_priority, set_io_priority

STANDARD: Final = (0, 1, 2)
TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
SIGNALS: Final = tuple(
    sorted(int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
)
LIMITS: Final = (
    resource.RLIMIT_AS,
    resource.RLIMIT_CORE,
    resource.RLIMIT_CPU,
    resource.RLIMIT_DATA,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_STACK,
)
"""Those that the calls of a tool can meet; each of the kernel's other eight would take its system call for nothing."""
OWN: Final = (os.PRIO_PROCESS, 0)
ENVIRONMENT: Final = os.environ
# Its own dictionary of bytes: decoding each variable would take fifty times as long.
_variables: Final[dict[bytes, bytes]] = vars(ENVIRONMENT)["_data"]
_functions: Any = _signal
_getsignal: Callable[[int], Any] = _signal.getsignal  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_sigmask: Callable[..., Any] = _signal.pthread_sigmask  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_setlocale: Callable[..., str] = _locale.setlocale
_getitimer: Callable[[int], tuple[float, float]] = signal.getitimer
_fcntl: Callable[..., int] = fcntl.fcntl
_of_threads: Final = vars(threading)
_shape_of: Final = attrgetter("encoding", "errors", "line_buffering", "write_through")


class StateKind(NamedTuple):
    """One kind of state."""

    name: str
    """As the outcome names it where it cannot be put back."""
    take: Callable[[], Any]
    """Returns the value; two values of the same state are equal."""
    put_back: Callable[[Any], object] | None
    """Sets the value again; None where nothing can."""
    is_changed: Callable[[Any], bool] | None = None
    """Whether the state is another one than a value; None where that is to be seen by taking it. It copies nothing, so that
    a call that changes nothing costs little."""
    certain: bool = True
    """Whether `put_back` always succeeds."""
    module: str = ""
    """It is imported where a tool can have changed it; empty where every tool can."""


class ProcessState:
    """The state that every call of this process begins with: as it is now."""

    def __init__(self) -> None:
        kept = [(row, row.take()) for row in ROWS]
        self._certain = [
            (row.take, row.is_changed, row.put_back, row.module, before)
            for row, before in kept
            if row.certain and row.put_back
        ]
        self._uncertain = [
            (row.take, row.is_changed, row, before)
            for row, before in kept
            if not (row.certain and row.put_back)
        ]

    def lost(self) -> tuple[str, ...]:
        """Put back what may not succeed; return the names of the rows that are changed for good."""
        lost: tuple[str, ...] = ()
        for take, is_changed, row, before in self._uncertain:
            if row.module and row.module not in sys.modules:
                continue
            if (take() != before if is_changed is None else is_changed(before)) and not _succeeds(
                row, before
            ):
                lost = (*lost, row.name)
        return lost

    def put_back(self) -> bool:
        """Put back the rest; return False if that failed, and the process is not to have another call."""
        try:
            for take, is_changed, put_back, module, before in self._certain:
                if module and module not in sys.modules:
                    continue
                if take() != before if is_changed is None else is_changed(before):
                    put_back(before)
        except Exception:  # noqa: BLE001  # a tool can have put any object there
            return False
        return True


def _succeeds(row: StateKind, before: Any) -> bool:
    if row.put_back is None:
        return False
    with contextlib.suppress(OSError, ValueError):
        row.put_back(before)
        return not (row.take() != before if row.is_changed is None else row.is_changed(before))
    return False


# The process


def _timers() -> tuple[tuple[bool, float], ...]:
    """Whether each runs, and its interval: what remains of it is another in each look."""
    (real, first), (virtual, second), (profile, third) = _getitimer(0), _getitimer(1), _getitimer(2)
    return ((real > 0, first), (virtual > 0, second), (profile > 0, third))


def _timers_are_changed(before: tuple[tuple[bool, float], ...]) -> bool:
    """Whether a timer runs that did not, or has another interval. One that was to expire once may have, or may not yet."""
    if (
        _getitimer(0),
        _getitimer(1),
        _getitimer(2),
    ) == before:  # none runs, as what remains of one that does not is 0
        return False
    return (now := _timers()) != before and any(
        each != earlier and not (earlier == (True, 0) and not each[1])
        for each, earlier in zip(now, before, strict=True)
    )


def _set_timers(before: tuple[tuple[bool, float], ...]) -> None:
    for which, (running, interval) in zip(TIMERS, before, strict=True):
        signal.setitimer(which, interval if running else 0, interval)


class _SetHandler:
    """In place of the function that sets a handler, as all Python code goes through it: to ask for each takes two microseconds."""

    def __init__(self, set_handler: Callable[[Any, Any], Any]) -> None:
        self._set_handler = set_handler
        self.is_called = False

    def __call__(self, number: Any, handler: Any, /) -> Any:
        self.is_called = True
        return self._set_handler(number, handler)


_set_handler: Final = _SetHandler(_functions.signal)


def watch_handlers() -> None:
    """Notice from now on what sets a handler; a worker does it before its file can keep the function."""
    _functions.signal = _set_handler


def _mask() -> Any:
    return _sigmask(signal.SIG_BLOCK, ())


def _set_mask(before: Any) -> None:
    for number in signal.sigpending() - before:
        signal.signal(number, signal.SIG_IGN)  # drops the one that waits, which was for the call
    _sigmask(signal.SIG_SETMASK, before)


def _dispositions() -> tuple[Any, ...]:
    return tuple(map(_getsignal, SIGNALS))


def _dispositions_are_changed(before: tuple[Any, ...]) -> bool:
    if not _set_handler.is_called:
        return False
    _set_handler.is_called = False
    return _dispositions() != before


def _set_dispositions(before: tuple[Any, ...]) -> None:
    for number, handler, now in zip(SIGNALS, before, _dispositions(), strict=True):
        if handler != now:
            signal.signal(number, handler)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _at_any_time(_: int) -> bool:
    """Setting it takes one system call, and looking at it two."""
    return True


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it is removed
        return ""


class _StandardFiles(NamedTuple):
    """What the standard descriptors are open on."""

    found: tuple[tuple[int, int] | None, ...]
    """The device and the inode of each; None for one that is closed."""
    flags: tuple[int, ...]
    """Their flags; none where one is closed."""


def _files() -> _StandardFiles:
    return _StandardFiles(_identities(), _marked())


def _marked() -> tuple[int, ...]:
    """Open the descriptors for appending, which has no effect on a pipe or a device; return the flags that no other has then."""
    try:
        for number in STANDARD:
            fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)
        return _flags()
    except OSError:  # it is closed
        return ()


def _flags() -> tuple[int, ...]:
    return _fcntl(0, fcntl.F_GETFL), _fcntl(1, fcntl.F_GETFL), _fcntl(2, fcntl.F_GETFL)


def _files_are_changed(before: _StandardFiles) -> bool:
    """Whether one is another file, or does not block as it did."""
    try:
        return _flags() != before.flags  # which takes a third of the time
    except OSError:  # one is closed
        return _identities() != before.found


def _set_flags(before: _StandardFiles) -> None:
    if _identities() == before.found:  # else nothing puts back the file
        for number, flags in zip(STANDARD, before.flags, strict=True):
            fcntl.fcntl(number, fcntl.F_SETFL, flags)


def _identities() -> tuple[tuple[int, int] | None, ...]:
    found: list[tuple[int, int] | None] = []
    for number in STANDARD:
        try:
            status = os.fstat(number)
            found.append((status.st_dev, status.st_ino))
        except OSError:  # it is closed
            found.append(None)
    return tuple(found)


def _limits() -> tuple[tuple[int, int], ...]:
    return tuple(map(resource.getrlimit, LIMITS))


def _set_limits(before: tuple[tuple[int, int], ...]) -> None:
    for which, limits in zip(LIMITS, before, strict=True):
        resource.setrlimit(which, limits)


def _set_policy(before: int) -> None:
    os.sched_setscheduler(0, before, os.sched_param(0))


def _environment_is_changed(before: tuple[bool, dict[bytes, bytes]]) -> bool:
    return os.environ is not ENVIRONMENT or _variables != before[1]


def _environment() -> tuple[bool, dict[bytes, bytes]]:
    return os.environ is ENVIRONMENT, dict(_variables)


def _set_environment(before: tuple[bool, dict[bytes, bytes]]) -> None:
    os.environ = ENVIRONMENT  # noqa: B003  # a tool can have put another object there
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in before[1].items()}
    for name in ENVIRONMENT.keys() - variables.keys():
        del ENVIRONMENT[name]
    ENVIRONMENT.update(variables)
    time.tzset()


# The interpreter


def _is_open(stream: Any) -> bool:
    try:
        return not stream.closed
    except (AttributeError, ValueError):  # it is detached from its buffer
        return False


def _open_streams() -> list[bool]:
    """Whether each is open: a closed one cannot be opened again for all that hold it."""
    streams: Any = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    try:
        return [not streams[0].closed, not streams[1].closed, not streams[2].closed]
    except (AttributeError, ValueError):  # one is detached from its buffer
        return [*map(_is_open, streams)]


def _shapes() -> list[Any]:
    """The streams, and how they encode."""
    return [
        (stream, _shape_of(stream))
        if isinstance(stream, io.TextIOWrapper) and _is_open(stream)
        else (stream, ())
        for stream in (sys.stdin, sys.stdout, sys.stderr)
    ]


def _shapes_are_changed(before: list[Any]) -> bool:
    (stdin, of_stdin), (stdout, of_stdout), (stderr, of_stderr) = before
    return bool(
        sys.stdin is not stdin or sys.stdout is not stdout or sys.stderr is not stderr
        or (of_stdin and _shape_of(stdin) != of_stdin)
        or (of_stdout and _shape_of(stdout) != of_stdout)
        or (of_stderr and _shape_of(stderr) != of_stderr)
    )  # fmt: skip


def _set_shapes(before: list[Any]) -> None:
    held = {id(stream.buffer) for stream, shape in before if shape}
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # One that a tool has laid over the same buffer would close it at its end.
        if isinstance(stream, io.TextIOWrapper) and all(stream is not kept for kept, _ in before):
            with contextlib.suppress(OSError, ValueError):
                if id(stream.buffer) in held:  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
                    stream.detach()
    (sys.stdin, _), (sys.stdout, _), (sys.stderr, _) = before
    for stream, shape in before:
        if shape:
            encoding, errors, line_buffering, write_through = shape
            stream.reconfigure(
                encoding=encoding, errors=errors, line_buffering=line_buffering, write_through=write_through
            )


def _filters() -> tuple[Any, ...]:
    return warnings.showwarning, list(warnings.filters)


def _filters_are_changed(before: tuple[Any, ...]) -> bool:
    return warnings.showwarning is not before[0] or warnings.filters != before[1]


def _set_filters(before: tuple[Any, ...]) -> None:
    logging.captureWarnings(False)
    warnings.showwarning, filters = before
    warnings.resetwarnings()  # tells the caches of modules; they read the list at their next warning
    warnings.filters[:] = filters  # type: ignore[index]  # typed as a sequence


def _root_logger() -> tuple[Any, ...]:
    root = logging.root
    handlers = [(handler, handler.level, handler.formatter) for handler in root.handlers]
    return root.level, root.manager.disable, root.disabled, list(root.filters), handlers


def _root_logger_is_changed(before: tuple[Any, ...]) -> bool:
    root = logging.root
    level, disable, disabled, filters, handlers = before
    if (
        root.level != level
        or root.manager.disable != disable
        or root.disabled != disabled
        or root.filters != filters
        or len(root.handlers) != len(handlers)
    ):
        return True
    for number, (handler, handler_level, formatter) in enumerate(handlers):
        now = root.handlers[number]
        if now is not handler or now.level != handler_level or now.formatter is not formatter:
            return True
    return False


def _set_root_logger(before: tuple[Any, ...]) -> None:
    root = logging.root
    level, disable, root.disabled, root.filters[:], handlers = before
    root.setLevel(level)
    logging.disable(disable)
    root.handlers[:] = [handler for handler, *_ in handlers]
    for handler, handler_level, formatter in handlers:
        handler.setLevel(handler_level)
        handler.setFormatter(formatter)


def _places() -> tuple[Any, ...]:
    return (
        sys.path, list(sys.path), sys.argv, list(sys.argv), list(sys.meta_path), list(sys.path_hooks),
    )  # fmt: skip


def _places_are_changed(before: tuple[Any, ...]) -> bool:
    path, places, argv, words, finders, hooks = before
    return (
        sys.path is not path or path != places or sys.argv is not argv or argv != words
        or sys.meta_path != finders or sys.path_hooks != hooks
    )  # fmt: skip


def _set_places(before: tuple[Any, ...]) -> None:
    sys.path, sys.path[:], sys.argv, sys.argv[:], sys.meta_path[:], sys.path_hooks[:] = before


def _hooks() -> tuple[Any, ...]:
    return (
        sys.gettrace(), sys.getprofile(), _of_threads["_trace_hook"], _of_threads["_profile_hook"],
        sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook,
    )  # fmt: skip


def _set_hooks(before: tuple[Any, ...]) -> None:
    trace, profile, of_threads, profile_of_threads, *reporting = before
    sys.settrace(trace)
    sys.setprofile(profile)
    threading.settrace(of_threads)
    threading.setprofile(profile_of_threads)
    sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook = reporting


def _garbage() -> tuple[Any, ...]:
    return gc.isenabled(), gc.get_threshold(), gc.get_debug()


def _set_garbage(before: tuple[Any, ...]) -> None:
    enabled, threshold, debug = before
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)


def _bounds() -> tuple[Any, ...]:
    return (
        sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(),
        socket.getdefaulttimeout(), threading.stack_size(),
    )  # fmt: skip


def _set_bounds(before: tuple[Any, ...]) -> None:
    recursion, interval, digits, timeout, stack = before
    sys.setrecursionlimit(recursion)
    sys.setswitchinterval(interval)
    sys.set_int_max_str_digits(digits)
    socket.setdefaulttimeout(timeout)
    threading.stack_size(stack)


def _crash_reports() -> bool:
    faulthandler.cancel_dump_traceback_later()  # it cannot be asked for
    return faulthandler.is_enabled()


def _set_crash_reports(before: bool) -> None:
    if before:
        faulthandler.enable(2, all_threads=False)
    else:
        faulthandler.disable()


ROWS: Final = (
    StateKind("timers", _timers, _set_timers, _timers_are_changed, certain=False),
    StateKind("standard streams", _open_streams, None),
    StateKind("file descriptors 0 to 2", _files, _set_flags, _files_are_changed, certain=False),
    StateKind("resource limits", _limits, _set_limits, certain=False, module=resource.__name__),
    StateKind("priority", partial(os.getpriority, *OWN), partial(os.setpriority, *OWN), certain=False),
    StateKind("scheduling policy", partial(os.sched_getscheduler, 0), _set_policy, certain=False),
    StateKind("I/O priority", io_priority, set_io_priority, certain=False),
    StateKind("directory", _directory, os.chdir, certain=False),
    StateKind("signal mask", _mask, _set_mask),
    StateKind("signal handlers", _dispositions, _set_dispositions, _dispositions_are_changed),
    StateKind("umask", _umask, os.umask, _at_any_time),
    StateKind("processors", partial(os.sched_getaffinity, 0), partial(os.sched_setaffinity, 0)),
    StateKind("environment", _environment, _set_environment, _environment_is_changed),
    StateKind("streams", _shapes, _set_shapes, _shapes_are_changed),
    StateKind("locale", partial(_setlocale, _locale.LC_ALL), partial(_setlocale, _locale.LC_ALL)),
    StateKind("warning filters", _filters, _set_filters, _filters_are_changed),
    StateKind("root logger", _root_logger, _set_root_logger, _root_logger_is_changed),
    StateKind("module search path and arguments", _places, _set_places, _places_are_changed),
    StateKind("hooks", _hooks, _set_hooks),
    StateKind("garbage collection", _garbage, _set_garbage, module=gc.__name__),
    StateKind("limits of the interpreter", _bounds, _set_bounds),
    StateKind("crash reports", _crash_reports, _set_crash_reports, module=faulthandler.__name__),
)
MODULES: Final = frozenset(row.module for row in ROWS if row.module)
"""What the zygote forgets to have imported; our own modules keep theirs."""
