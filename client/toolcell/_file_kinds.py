"""The kinds of tool files: how the files of each are named, found, loaded, run and tested.

`KINDS` has one entry for each kind. The daemon, its workers and the command ask the entry; no other module compares a
suffix, and a test holds that. The same module has what the name of a file says: `kind_of`, `tool_stem`, `is_test`.

A new kind is one entry, and one module that turns a file of it into tools, which `LOADERS` of `toolcelld.worker.loading.loader`
has by the name in `loader`:

    module   the worker runs the file as a Python module: `toolcelld.worker.loading.loader`
    plugin   the worker reads the file, which has no code: `toolcell._plugins.load`, called by the same module
    server   the worker starts the program that the file names, and asks it: `toolcell._servers.load`, called by the same module
    engine   the cell executes an engine, and the worker written for it: `toolcelld/worker/javascript`
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

Loader: TypeAlias = Literal["module", "plugin", "server", "engine"]
Place: TypeAlias = Literal["tools", "plugins", "configuration"]

TESTS: Final = "tests"
"""The directory beside tool files that has their tests, and no tools."""
SHARED_BY_TESTS: Final = "conftest.py"
"""What pytest reads before the tests of a directory."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of tool files.

    Attributes:
        language: Its name in messages.
        suffixes: What the names of its files end with; new files get the first.
        loader: Which module turns a file into tools.
        place: The directories that are searched for it: those of tools, or those of plugins. None is searched for one of
            the configuration, whose files are entries there.
        package: The stem of the file that makes a directory one tool file, such as "index"; empty for none.
        links_packages: Whether that directory may be a symbolic link. Default: False.
        excluded: Endings of names that have a suffix of the kind and are no tool files.
        tests: The stems of the tests of a file, with {} for its own stem.
        runs_tests: Whether `toolcell test` runs them. Default: False.
        renaming: How a file of it names a tool, at the end of an advice to rename one; empty where that is plain.
        looked_for: What makes a tool in its files, for a file that has none.
    """

    language: str
    suffixes: tuple[str, ...]
    loader: Loader
    place: Place = "tools"
    package: str = ""
    links_packages: bool = False
    excluded: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    runs_tests: bool = False
    renaming: str = ": @tool(name=…)"
    looked_for: str = ""

    @property
    def suffix(self) -> str:
        """The suffix of new files."""
        return self.suffixes[0]

    @property
    def needs_engine(self) -> bool:
        """Whether a program other than Python runs its files; without one they are not used."""
        return self.loader == "engine"

    def packages_in(self, directory: str) -> tuple[str, ...]:
        """Return the paths of which the first that is there makes a directory one tool file."""
        return tuple(
            os.path.join(directory, self.package + suffix) for suffix in self.suffixes if self.package
        )

    def files_of(self, path: str) -> tuple[str, ...]:
        """Return the paths of which the first that is there is a tool file, for a path without its suffix."""
        return (*(path + suffix for suffix in self.suffixes), *self.packages_in(path))


PYTHON: Final = FileKind(
    "Python",
    (".py",),
    "module",
    package="__init__",
    links_packages=True,
    tests=("test_{}", "{}_test"),
    runs_tests=True,
    looked_for=(
        "functions with @tool, tool(…, execute=…), objects with a description and execute(args, context), "
        "and tools of FastMCP, LangChain, smolagents, the OpenAI Agents SDK and Pydantic AI"
    ),
)
TYPESCRIPT: Final = FileKind(
    "TypeScript",
    (".ts", ".mts", ".cts", ".tsx"),
    "engine",
    package="index",
    excluded=(".d.ts", ".d.mts", ".d.cts"),
    tests=("{}.test", "{}.spec"),
    looked_for="exported objects with a description and execute(args, context), as tool({…}) returns them",
)
JAVASCRIPT: Final = replace(TYPESCRIPT, language="JavaScript", suffixes=(".js", ".mjs", ".cjs", ".jsx"))
PLUGIN: Final = FileKind(
    "JSON", (".json",), "plugin", place="plugins", renaming="", looked_for='entries of "tools"'
)
SERVER: Final = FileKind(
    "MCP", (".mcp",), "server", place="configuration", renaming="", looked_for="an answer to tools/list"
)

KINDS: Final = (PYTHON, TYPESCRIPT, JAVASCRIPT, PLUGIN, SERVER)
"""In the order in which an entry of a directory is tried."""
BY_SUFFIX: Final = {suffix: kind for kind in KINDS for suffix in kind.suffixes}
_SUFFIXES_OF_TOOLS: Final = tuple(
    suffix for kind in KINDS if kind.place == "tools" for suffix in kind.suffixes
)


def kind_of(path: str) -> FileKind | None:
    """Return the kind of a tool file by its name; None for other names."""
    return BY_SUFFIX.get(os.path.splitext(path)[1])


def needs_engine(path: str) -> bool:
    """Return whether a path is that of a tool file that an engine runs."""
    kind = kind_of(path)
    return kind is not None and kind.needs_engine


def listed(words: Sequence[str]) -> str:
    """Return words as a message has them: "NAME.py, NAME.ts or NAME.js"."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def is_package(path: str) -> bool:
    """Return whether a path is that of the file that makes its directory one tool file."""
    kind = kind_of(path)
    return kind is not None and bool(kind.package) and _stem(path) == kind.package


def tool_stem(path: str) -> str:
    """Return the name of a tool file without its suffix; for a package, the name of its directory."""
    if kind_of(path) is None:
        return os.path.basename(path)
    return os.path.basename(os.path.dirname(path)) if is_package(path) else _stem(path)


def tested_by(name: str) -> str:
    """Return the stem of the tool file that a file tests by its name: of `test_lint.py`, `lint_test.py`, `lint.test.ts`.

    Empty for other names.
    """
    kind, stem = kind_of(name), _stem(name)
    for pattern in kind.tests if kind is not None else ():
        before, _, after = pattern.partition("{}")
        if stem.startswith(before) and stem.endswith(after):
            return stem[len(before) : len(stem) - len(after)]
    return ""


def is_test(name: str, names: Container[str]) -> bool:
    """Return whether an entry of a directory of tools belongs to the tests of those that are there, and is no tool.

    A file is a test by its name only where the file that it tests lies beside it, because `run_test` is a good name for
    a tool.

    Args:
        name: The name of the entry.
        names: Those of all entries of the directory.
    """
    if name in (SHARED_BY_TESTS, TESTS):
        return True
    tested = tested_by(name)
    return bool(tested) and any(tested + suffix in names for suffix in ("", *_SUFFIXES_OF_TOOLS))


def tests_of(path: str) -> tuple[str, ...]:
    """Return the test files of a tool file that `toolcell test` runs: beside it, and in the directory `tests` there.

    Blocks on the file system.
    """
    return tuple(filter(os.path.isfile, _names_of_tests(path)))


def _names_of_tests(path: str) -> Iterator[str]:
    kind = kind_of(path)
    if kind is None or not kind.runs_tests:
        return
    stem, directory = tool_stem(path), os.path.dirname(path)
    if is_package(path):
        directory = os.path.dirname(directory)
    for place in ("", TESTS):
        for pattern in kind.tests:
            yield os.path.join(directory, place, pattern.format(stem) + kind.suffix)


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]
