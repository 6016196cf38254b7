"""Has a process that `multiprocessing` starts with "spawn" or "forkserver" find the tool file, as the worker does.

Such a process is a new interpreter, or a fork of one. It reads its preparation data from a pipe, and after it what it is
to run, by the names of modules. So the data has one entry more: to read that entry is to run this file in the process,
which installs the finders of the worker. Neither its path nor its packages are set by then.
"""

from __future__ import annotations

import importlib.machinery
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from toolcelld.worker.loading.finders import ToolSource

SPAWNED: Final = "toolcell_spawned"
"""The name that this module has in such a process."""
MODULE: Final = "multiprocessing.spawn"

Told: TypeAlias = tuple[tuple[str, str, str, bool, bytes], str, tuple[str, str], list[str]]
"""The fields of the tool file, the name of its module, its project, and where Toolcell's packages are."""


def install(source: ToolSource, name: str, project: tuple[str, str]) -> None:
    """Have every process that `multiprocessing` starts from now on find the tool file; the arguments are those of `finders.install`."""
    import toolcell
    import toolcelld

    fields = (source.path, source.stem, source.directory, source.package, source.content)
    roots = [os.path.dirname(package.__path__[0]) for package in (toolcell, toolcelld)]
    entry = _Entry((fields, name, project, roots))
    if (module := sys.modules.get(MODULE)) is not None:
        entry.add_to(module)
    else:  # few tools start processes so, and to import it takes milliseconds
        sys.meta_path.insert(0, _SpawnFinder(entry))


class _Entry:
    """The entry of the preparation data: where it is read, this file is run."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def __reduce__(self) -> tuple[Any, ...]:
        return runpy.run_path, (__file__, {"TOLD": self._told}, SPAWNED)

    def add_to(self, module: Any) -> None:
        """Have `multiprocessing.spawn` send it."""
        prepared = module.get_preparation_data

        def with_file(name: str) -> dict[str, Any]:
            return {**prepared(name), SPAWNED: self}

        module.get_preparation_data = with_file


class _SpawnFinder:
    """Adds the entry to `multiprocessing.spawn` when that is imported."""

    def __init__(self, entry: _Entry) -> None:
        self._entry = entry

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(self._entry, spec.loader)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, entry: _Entry, own: importlib.machinery.SourceFileLoader) -> None:
        super().__init__(own.name, own.path)
        self._entry = entry

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        self._entry.add_to(module)


def _prepare(told: Told) -> None:
    """Install the finders in the new process."""
    fields, name, project, roots = told
    before = sys.path[:]
    sys.path[:0] = roots
    from toolcelld.worker.loading import finders
    from toolcelld.worker.loading.spawned import install as install_further

    sys.path[:] = before
    source = finders.ToolSource(*fields)
    sys.meta_path.insert(0, finders.ToolFinder(finders.install(source, name, project)))
    install_further(source, name, project)


if __name__ == SPAWNED:
    _prepare(globals()["TOLD"])
