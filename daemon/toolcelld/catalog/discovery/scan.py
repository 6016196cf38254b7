"""The scan of the sources: which tool files there are.

`scan` only reads the file system: it runs in a thread, keeps no state and never runs a file.
It reads one level of each directory. Which entries are tool files, the kinds decide (`toolcell._file_kinds`, `candidates`):
Python files and packages, JSON files in a directory of plugins, scripts where an engine is there. Names that begin with "_"
or "." are helper modules, and the tests of tools are no tools. What is not run is noted, see `problem`.
An entry that cannot be used is reported as a `Problem` at its position, so that precedence is kept.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolcell._file_kinds import KINDS, is_test, needs_engine
from toolcelld.catalog.discovery.candidates import Candidate, candidate_of
from toolcelld.catalog.discovery.digest import Digest, code_of, digest_below, listed
from toolcelld.catalog.discovery.sources import Source, ToolFile, fault_within
from toolcelld.catalog.problem import Problem, unused_in
from toolcelld.config.project_file import PROJECT_FILE
from toolcelld.config.schema import PROJECT
from toolcelld.environments.engine import ENGINES, EngineName, ScriptEngine, engine_here
from toolcelld.files.paths import open_plain
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular
from toolcelld.flavours import flavour_of

FILE_BYTES_MAX = 2**20  # a tool file is source code; the largest module of CPython's library has 0.6 MiB
FILES_MAX = 4096  # of one directory; the largest known collection of tools has a few hundred
ENTRIES_MAX = 4 * FILES_MAX  # of one directory, helpers and data included
NO_LINKS = (
    "A project's tools are read from files and directories of the project only; put the file itself there"
)
CONTENT_BYTES_MAX = 32 * 2**20  # held in memory for one session directory: 4096 files of 8 KiB

_ENCODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+")  # PEP 263


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of one scan, in order of precedence."""

    directory: str
    found: tuple[ToolFile | Problem, ...]

    @property
    def files(self) -> tuple[ToolFile, ...]:
        """The files that can be described."""
        return tuple(entry for entry in self.found if isinstance(entry, ToolFile))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The entries that cannot be used."""
        return tuple(entry for entry in self.found if isinstance(entry, Problem))


def scan(sources: Sequence[Source], directory: str) -> Scan:
    """Scan the sources. Blocks on the file system; never raises for anything found there."""
    found: list[ToolFile | Problem] = []
    directories: set[str] = set()
    paths: dict[str, str] = {}  # resolved to first seen
    engines: dict[EngineName | None, ScriptEngine | None] = {}
    budget = CONTENT_BYTES_MAX
    for source in sources:
        if source.mistakes:
            found.append(Problem(_place_of_mistakes(source), "", "broken", source.mistakes))
        if source.server is not None:
            found.append(source.server)
        for place in source.places:
            resolved = os.path.realpath(place)
            if (looked := os.path.join(resolved, source.only)) in directories:
                continue  # the home directory is the project: its files were scanned already
            directories.add(looked)
            fault = source.fault
            if not fault and source.safe is not None:
                fault = fault_within(resolved, source.safe, only=bool(source.only))
            if fault:
                found.append(Problem(looked.rstrip("/"), "", "rejected", fault))
                continue
            look = _scan_listed if source.listed else _scan_directory
            if source.runtime not in engines:
                engines[source.runtime] = engine_here(source.runtime, directory)
            try:
                for entry in look(source, place, resolved, paths, budget, engines[source.runtime]):
                    found.append(entry)
                    budget -= len(entry.content) if isinstance(entry, ToolFile) else 0
            except OSError as error:  # of a file system that fails between two looks at the same entry
                found.append(Problem(place, "", "broken", f"cannot be read: {error.strerror}"))
    return Scan(directory, tuple(found))


def _place_of_mistakes(source: Source) -> str:
    if source.listed:
        return source.listed
    return os.path.join(os.path.dirname(os.path.dirname(source.places[0])), PROJECT_FILE)


def _scan_listed(
    source: Source,
    place: str,
    resolved: str,
    paths: dict[str, str],
    budget: int,
    engine: ScriptEngine | None,
) -> Iterator[ToolFile | Problem]:
    """Scan for the one file of a source; its directory may be that of another source, which has it already."""
    path = os.path.join(resolved, source.only)
    if any(first == path or first.startswith(path + os.sep) for first in paths.values()):
        return
    found = tuple(_scan_directory(source, place, resolved, paths, budget, engine))
    message = f"is listed in {source.listed}, and is not there or no tool file; correct it there"
    yield from found or (Problem(path, "", "broken", message),)


def _scan_directory(
    source: Source,
    place: str,
    resolved: str,
    paths: dict[str, str],
    budget: int,
    engine: ScriptEngine | None,
) -> Iterator[ToolFile | Problem]:
    flavour, is_plugins = flavour_of(place), place in source.plugins
    # A project comes with links of its author's choice, which could lead to any directory of the user.
    plain = source.name == PROJECT and not source.only
    if not plain:
        place = resolved  # a directory of the user's own may be a link, and cells have what it leads to
    try:
        entries = listed(place, ENTRIES_MAX + 1, plain=plain)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if plain and error.errno == errno.ELOOP:
            yield Problem(place, "", "rejected", f"is a link, or is below one. {NO_LINKS}")
            return
        yield Problem(place, "", "broken", f"{error.strerror}; make the directory readable, or remove it")
        return
    if len(entries) > ENTRIES_MAX:
        yield Problem(place, "", "broken", f"more than {ENTRIES_MAX} entries; the rest is ignored")
    names = {entry.name for entry in entries}
    if source.only:
        entries = [entry for entry in entries if entry.name == source.only]
    else:
        entries = [entry for entry in entries if not is_test(entry.name, names)]
    wanted = "plugins" if is_plugins else "tools"
    kinds = [kind for kind in KINDS if kind.place == wanted and (engine is not None or not kind.needs_engine)]
    candidates = [candidate for entry in entries if (candidate := candidate_of(place, entry, kinds))]
    if len(candidates) > FILES_MAX:
        message = f"{len(candidates)} tool files; only the first {FILES_MAX} are used"
        yield Problem(place, "", "broken", message)
    contents = _contents(candidates[:FILES_MAX], paths, budget, plain=plain)
    read = {path[len(place) + 1 :]: found for path, found in contents.items() if isinstance(found, bytes)}
    digest = digest_below(place, source.python, read, plain=plain)
    missing = "" if engine is not None else source.runtime or " or ".join(ENGINES)
    tool_files = [candidate.path for candidate in candidates]
    notes = not is_plugins and (not source.only or needs_engine(source.only))
    yield from unused_in(place, entries, tool_files, missing) if notes else ()
    for candidate in candidates[:FILES_MAX]:
        path = candidate.path
        content = contents[path]
        if isinstance(content, Problem):
            yield content
            continue
        runs = engine if candidate.kind.needs_engine else None
        yield ToolFile(
            path,
            source.name,
            source.scope,
            candidate.stem,
            content,
            _digest_of(path, content, digest, source, runs),
            place,
            source.python,
            source.programs,
            source.requires,
            digest.uncovered,
            flavour.name if flavour is not None else "toolcell",
            source.asked,
            runs,
            source.project,
            code=code_of(digest, source.project_file) if plain else "",
        )


def _contents(
    candidates: Sequence[Candidate], paths: dict[str, str], budget: int, *, plain: bool
) -> dict[str, bytes | Problem]:
    """Read candidates; return by path what is in each, or why it cannot be used."""
    found: dict[str, bytes | Problem] = {}
    for candidate in candidates:
        path = candidate.path
        if candidate.is_link and plain:
            found[path] = Problem(path, "", "rejected", f"is a link, or has one as its module. {NO_LINKS}")
            continue
        real = os.path.realpath(path) if candidate.is_link else path
        if (first := paths.setdefault(real, path)) != path:
            found[path] = Problem(path, "", "rejected", f"is the same file as {first}, which is used")
            continue
        content = found[path] = _read(path, budget, plain=plain)
        budget -= len(content) if isinstance(content, bytes) else 0
    return found


def _digest_of(
    path: str, content: bytes, directory: Digest, source: Source, engine: ScriptEngine | None
) -> str:
    """Return the digest of a tool file: of its directory, of what it asks for, and of what runs it."""
    own = hashlib.blake2b(directory.value, digest_size=20)
    own.update(source.project_file)  # what it asks for may change how its files are described
    # The file's own content too: a link may point outside the directory.
    own.update(os.fsencode(path) + b"\0" + content)
    own.update(os.fsencode(engine.key) if engine is not None else b"")
    return own.hexdigest()


def _read(path: str, budget: int, *, plain: bool) -> bytes | Problem:
    """Return the source code in a file, or the problem that prevents its use."""
    try:
        path.encode()
        content = read_regular(path, FILE_BYTES_MAX, opened=open_plain if plain else os.open)
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="replace")
        return Problem(shown, "", "broken", "its name is not UTF-8; rename it")
    except FileNotFoundError:
        return Problem(path, "", "broken", "the link points to nothing; fix or remove it")
    except OSError as error:
        return Problem(path, "", "broken", f"{error.strerror}; make the file readable, or remove it")
    except NotRegularError as error:
        return Problem(path, "", "broken", f"is {error}, not a file; it was not opened")
    except TooLargeError:
        return Problem(
            path, "", "broken", "too large: more than 1 MiB; a tool file is source code, keep data beside it"
        )
    if len(content) > budget:
        message = f"too large together: the tool files here have more than {CONTENT_BYTES_MAX // 2**20} MiB"
        return Problem(path, "", "broken", message)
    return _not_source(path, content) or content


def _not_source(path: str, content: bytes) -> Problem | None:
    if (nul := content.find(b"\0")) >= 0:
        line = content.count(b"\n", 0, nul) + 1
        return Problem(path, "", "broken", "is binary, not source code: it has a NUL byte", line)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        # It declares another encoding. A codec may be slow on purpose, so only the worker decodes it.
        if any(map(_ENCODING.match, content.split(b"\n", 2)[:2])):
            return None
        line = content.count(b"\n", 0, error.start) + 1
        return Problem(path, "", "broken", "is not UTF-8; save it as such, or declare its encoding", line)
    return None
