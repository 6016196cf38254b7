"""Reports which files of the project a tool has imported as modules, so that an edit of one has an effect.

The daemon compares their modification times when it leases the worker, and takes another worker if one has changed.
Files below the tool's own directory are not reported, as the daemon has their digest, nor those of the environment.
"""

from __future__ import annotations

import operator
import os
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice, takewhile
from typing import Final, cast

from toolcelld.protocol.messages import IMPORTED_MAX, LINE_CHARACTERS_MAX

FILES_MAX: Final = 500
"""Looked at before every call, at some microseconds each; a project with more modules is an application."""
MARGIN_NS: Final = 20_000_000
"""Times of files are as coarse as a tick of the kernel."""
FUTURE_NS: Final = 2_000_000_000
"""A time so far ahead is of another clock."""


class ImportedFiles:
    """The files that were imported so far.

    Args:
        project: The project's directory, resolved; empty reports nothing.
        apart: Directories whose files are not reported.
        after: The module that the zygote imported last; it and those before it are not reported. Empty for none.
    """

    def __init__(self, project: str, *apart: str, after: str = "") -> None:
        self._root = os.path.join(project, "") if project else ""
        self._after = after
        self._apart = tuple(os.path.join(place, "") for place in apart if place)
        self._known: set[str] = set()
        self._reported = 0

    def new_since(self, began_ns: int) -> Iterator[Mapping[str, int]]:
        """Yield what was imported since the last look, in parts that fit a message.

        Args:
            began_ns: When importing began at the earliest, by the clock of files, in nanoseconds.
        """
        if not self._root:
            return
        found = iter(list(self._look(began_ns)))
        while part := dict(islice(found, IMPORTED_MAX)):
            yield part

    def _names(self) -> list[str]:
        """The names of the modules that were imported after those of the zygote, in the order of their imports.

        The zygote's are not touched, because reading the path of each copies 1.3 MB of pages that the cells share.
        """
        # In one step, as a thread of the tool may import another module meanwhile.
        return list(takewhile(partial(operator.ne, self._after), reversed(sys.modules)))[::-1]

    def _look(self, began_ns: int) -> Iterator[tuple[str, int]]:
        now = time.time_ns()
        for name in self._names():
            path = _file_of(sys.modules.get(name))
            if path is None or path in self._known:
                continue
            self._known.add(path)
            real = os.path.realpath(path)
            shown = real[len(self._root) :]
            if not real.startswith(self._root) or real.startswith(self._apart):
                continue
            if self._reported >= FILES_MAX or len(shown) > LINE_CHARACTERS_MAX or not shown.isprintable():
                continue
            self._reported += 1
            try:
                stamp = os.stat(real).st_mtime_ns
            except OSError:
                stamp = 0
            # Written while it was imported: which version was read is not known.
            changed = began_ns - MARGIN_NS <= stamp <= now + FUTURE_NS
            yield shown, 0 if changed else max(0, stamp)


def _file_of(module: object) -> str | None:
    """Return a module's file, without running the code of a lazy module or of another object in its place."""
    try:
        values: object = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return None
    path = cast("dict[str, object]", values).get("__file__") if type(values) is dict else None
    return path if type(path) is str and path.startswith("/") else None
