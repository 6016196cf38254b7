"""Finds what a tool file imports: the file itself, modules next to it and modules of its project.

Modules next to the file can be imported; they precede installed packages but not the standard library, so that a tool
called `calendar.py` does not break other imports of `calendar`. A relative import always means a module next to the file.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Final

from toolcell._authoring.libraries.modules import install as install_stand_ins

COMPILED: Final = "__pycache__"
SIBLINGS: Final = "toolcell_siblings"
"""The package that a tool file's directory is for relative imports: `from .helper import x`."""


@dataclass(frozen=True, slots=True)
class ToolSource:
    """One tool file as the daemon read it."""

    path: str
    stem: str
    directory: str  # where its siblings are
    package: bool
    content: bytes


def install(source: ToolSource, name: str, project: tuple[str, str]) -> importlib.machinery.ModuleSpec:
    """Install the finders of a tool file; return the spec of its own module.

    Args:
        project: The directory of the project, and that of its environment; both empty for none.
    """
    position = sys.meta_path.index(importlib.machinery.PathFinder)
    sys.meta_path.insert(position, _SiblingFinder(source.directory))
    if project[0]:
        sys.meta_path.insert(position + 1, _ProjectFinder(*project))
    sys.path_hooks.insert(0, _own_finders(os.path.realpath(source.directory)))
    install_stand_ins()
    spec_type = importlib.machinery.ModuleSpec if source.package else _FileSpec
    spec = spec_type(name, _SourceLoader(source), origin=source.path, is_package=source.package)
    spec.has_location = True
    if source.package:
        spec.submodule_search_locations = [os.path.dirname(source.path)]
    else:
        siblings = sys.modules[SIBLINGS] = ModuleType(SIBLINGS)
        siblings.__path__ = [source.directory]
    return spec


class ToolFinder(importlib.abc.MetaPathFinder):
    """A finder for the module of the tool file, where it is not loaded by us."""

    def __init__(self, spec: importlib.machinery.ModuleSpec) -> None:
        self._spec = spec

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return self._spec if name == self._spec.name else None


class _SourceLoader(importlib.abc.InspectLoader):
    """A loader for source code that has been read already."""

    def __init__(self, source: ToolSource) -> None:
        self._source = source

    def get_source(self, fullname: str) -> str:  # always the same module
        return importlib.util.decode_source(self._source.content)

    def get_code(self, fullname: str) -> CodeType:  # always the same module
        return compile(self._source.content, self._source.path, "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:  # always the same module
        return self._source.package


class _UncachedFileLoader(importlib.machinery.SourceFileLoader):
    """A loader that neither reads nor writes a `.pyc`, which misses a second edit within one second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _FileSpec(importlib.machinery.ModuleSpec):
    """The spec of a tool file that is no package: its name has no dot, and it still has a package above it."""

    @property
    def parent(self) -> str:
        return SIBLINGS


class _OwnFinder(importlib.machinery.FileFinder):
    """A finder for a directory of the tool's, also one that the tool puts on `sys.path`; compiled files are no modules.

    The digest that a trust is pinned to does not cover `__pycache__`.
    """

    def find_spec(
        self, fullname: str, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if COMPILED in (*self.path.split(os.sep), fullname.rpartition(".")[2]):
            return None
        return super().find_spec(fullname, target)


def _own_finders(directory: str) -> Callable[[str], _OwnFinder]:
    """Return a path hook for what is in the tool's directory."""

    def hook(path: str) -> _OwnFinder:
        real = os.path.realpath(path)
        if real != directory and not real.startswith(directory + os.sep):
            raise ImportError("not of the tool")
        return _OwnFinder(
            path,
            (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
            (_UncachedFileLoader, importlib.machinery.SOURCE_SUFFIXES),
            (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
        )

    return hook


class _SiblingFinder:
    """A finder for modules and packages next to the tool file, except names of the standard library."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is None:
            search_path = [] if name in sys.stdlib_module_names else [self._directory]
        else:
            search_path = [place for place in path if place.startswith(self._directory + os.sep)]
        return importlib.machinery.PathFinder.find_spec(name, search_path, target) if search_path else None


class _FreshFileLoader(_UncachedFileLoader):
    """A loader that uses a `.pyc` only if the source cannot have been edited again in the second of its time."""

    def get_code(self, fullname: str) -> CodeType:
        try:
            cached = importlib.util.cache_from_source(self.path)
            fresh = int(os.stat(cached).st_mtime) > int(os.stat(self.path).st_mtime)
        except (OSError, NotImplementedError):
            fresh = True  # there is none; one that is written now says itself how old it is
        if not fresh:
            return super().get_code(fullname)
        code = importlib.machinery.SourceFileLoader.get_code(self, fullname)
        assert code is not None
        return code


class _ProjectFinder:
    """A finder for modules of the project outside of its environment, whose edits have to have an effect."""

    def __init__(self, project: str, environment: str) -> None:
        self._project = os.path.join(project, "")
        self._environment = os.path.join(environment, "") if environment else ""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            place = spec.loader.path
            inside = self._environment and place.startswith(self._environment)
            if place.startswith(self._project) and not inside:
                spec.loader = _FreshFileLoader(name, place)
        return spec
