"""Finds what the import of a file has started, and a fork would share between the calls or lose.

Threads, descriptors, processes, timers, exit functions, finalizers, temporary files and shared memory. A file whose import
leaves any of them gets a cell of its own for each call.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from toolcelld.worker.template.leftovers import Leftovers

PERMISSIONS: Final = 1
"""Which field of a mapping they are: `mprotect` changes them."""
TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class ImportTraces:
    """Records what the import of a file leaves in the process; a context manager around it.

    Args:
        leftovers: Finds the temporary files that it makes.
    """

    def __init__(self, leftovers: Leftovers) -> None:
        self._leftovers = leftovers
        self._exit_functions: list[object] = []

    def __enter__(self) -> Self:
        self._descriptors = _descriptors()
        self._mappings = _shared_mappings()
        self._finalizers = set(_finalizers())
        self._register = atexit.register

        def register(function: Callable[..., Any], /, *args: Any, **options: Any) -> Callable[..., Any]:
            self._exit_functions.append(None if args or options else function)
            registered: Callable[..., Any] = self._register(function, *args, **options)
            return registered

        atexit.register = register
        return self

    def __exit__(self, *_: object) -> None:
        atexit.register = self._register

    def unfit(self) -> str:
        """Return what makes the file unfit for a template; empty where nothing does."""
        if len(os.listdir("/proc/self/task")) > 1:
            return "it started a thread"
        if _descriptors() != self._descriptors:
            return "it opened or closed a descriptor"
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            if file.read(1):
                return "it started a process"
        if not all(map(_is_of_library, self._exit_functions)):
            return "it registered an exit function"
        if any(finalizer.atexit for finalizer in _finalizers() if finalizer not in self._finalizers):
            return "it registered a finalizer"
        if any(signal.getitimer(timer)[0] for timer in TIMERS) or _read("/proc/self/timers"):
            return "it set a timer"
        if _shared_mappings() != self._mappings:
            return "it made shared memory"
        if not self._leftovers.is_clean():
            return "it made temporary files"
        return ""


def _is_of_library(function: object) -> bool:
    """Whether an exit function only tidies up a module of the standard library."""
    if isinstance(function, types.MethodType) and not isinstance(function.__self__, type):
        return False
    module = (
        getattr(function, "__module__", None)
        if isinstance(function, types.FunctionType | types.MethodType)
        else None
    )
    return isinstance(module, str) and module.partition(".")[0] in sys.stdlib_module_names


def _finalizers() -> Iterable[Any]:
    return list(getattr(weakref.finalize, "_registry", ()))


def _descriptors() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # that of the list itself
    return found


def _shared_mappings() -> set[bytes]:
    """The mappings that a fork would share and that can be written, now or after `mprotect`."""
    found: set[bytes] = set()
    mapping = b""
    for line in _read("/proc/self/smaps").splitlines():
        name, _, rest = line.partition(b":")
        if name == b"VmFlags" and {b"sh", b"mw"} <= set(rest.split()):
            found.add(mapping)
        elif b"-" in name.partition(b" ")[0]:
            mapping = b" ".join(part for place, part in enumerate(line.split()) if place != PERMISSIONS)
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
