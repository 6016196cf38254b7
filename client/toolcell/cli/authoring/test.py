"""`toolcell test`: runs the tests of tools, each in the cell of its tool.

A private daemon, which is told that it is for tests (`toolcelld --tests`), runs them as calls of the tools: under the
permit of the tool, within its limits, by the same road as any other call. So a test may do what its tool may do, and
what the tests of an untrusted project do is confined as its tools are. Which files are run is decided here, by their
names; they are read in the cell.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from toolcell._file_kinds import PYTHON, TESTS, kind_of, tested_by, tests_of, tool_stem
from toolcell.cli._ui import outcome_text
from toolcell.cli._ui.connect import CommandContext, daemon, tool_file
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.format import clean, shown_path
from toolcell.cli._ui.prose import columns_of, fitted
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.terminal import LOADING, Terminal
from toolcell.cli.calls.call import file_of, interrupts, session_of, started, wait_for_catalog, watched
from toolcell.client import Catalog, Kind, Outcome, Session
from toolcell.client._launch.daemon import Daemon

COUNTS: Final = ("passed", "failed", "skipped")


@dataclass(frozen=True, slots=True)
class _Tested:
    """A tool file and its test files."""

    path: str
    tests: tuple[str, ...]
    # The tool in whose cell they run; empty for the one that is called like the file, else the first
    export: str = ""

    def tool(self, catalog: Catalog) -> str:
        """The tool in whose cell they run. Raises Failure for one that is not there."""
        stem, here = tool_stem(self.path), os.path.realpath(self.path)
        names = [name for name, tool in catalog.tools.items() if os.path.realpath(tool.path) == here]
        for name in (self.export, f"{stem}_{self.export}") if self.export else (stem, *names[:1]):
            if name in names:
                return name
        if names:
            place, choices = shown_path(self.path), ", ".join(names)
            raise Misuse(f"{place} has no tool {self.export!r}.", f"Take one of: {choices}")
        return stem  # the refusal of the call says what is wrong with the file


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of the tests of a tool file."""

    tested: _Tested
    tool: str
    call_id: str
    outcome: Outcome

    @property
    def counts(self) -> dict[str, int]:
        """The number of tests by how they ended; empty if the run did not come to its end."""
        found = {name: self._details.get(name) for name in COUNTS}
        return {name: it for name, it in found.items() if type(it) is int and it >= 0} if any(found) else {}

    @property
    def ok(self) -> bool:
        return self.outcome.ok and not self.counts.get("failed", 1)

    @property
    def _details(self) -> Mapping[str, Any]:
        """What the cell says of the run, which is code of the tool's author."""
        said = self.outcome.details
        return cast("Mapping[str, Any]", said) if isinstance(said, dict) else {}

    def line(self) -> str:
        """What it came to, for people."""
        said = [f"{count} {name}" for name, count in self.counts.items() if count or name == "passed"]
        runner = "" if self._details.get("runner") == "pytest" else ", without pytest"
        files = ", ".join(map(shown_path, self.tested.tests))
        return f"{clean(self.tool)}: {', '.join(said)} ({files}{runner})"

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        runner = self._details.get("runner")
        failures = self._details.get("failures")
        return {
            "path": self.tested.path,
            "tool": self.tool,
            "tests": list(self.tested.tests),
            "ok": self.ok,
            "runner": runner if runner in ("pytest", "functions") else None,
            **{name: self.counts.get(name) for name in COUNTS},
            "failures": [*_failures(failures)],
            "call_id": self.call_id,
            "outcome": self.outcome.to_dict(),
        }


def _failures(said: object) -> Iterator[dict[str, str]]:
    for item in cast("list[object]", said) if isinstance(said, list) else ():
        if isinstance(item, dict):
            failure = cast("dict[str, object]", item)
            yield {"test": str(failure.get("test", "")), "message": str(failure.get("message", ""))}


async def test(
    context: CommandContext, files: Sequence[str], timeout_seconds: float | None, *, allow_all: bool
) -> Exit:
    """Run tests, show what they print, and exit with 1 unless all have passed.

    Args:
        files: Test files, or tool files, whose tests are meant; empty for those of all tools of the directory.
        timeout_seconds: A time limit for the tests of each tool, below that of the tool; default: that of the tool.
        allow_all: Whether questions are answered with yes.

    Raises:
        Failure: A file has no tests or is the test of no tool, or the directory has no tests.
    """
    wanted = [_tested(file) for file in files]
    only = tuple(dict.fromkeys(tested.path for tested in wanted))
    terminal = Terminal(sys.stderr if context.as_json else sys.stdout, quiet=context.quiet)
    done: list[_Done] = []
    async with (
        terminal.waiting(LOADING) as waiting,
        daemon(context, only=only, tests=True) as found,
        session_of(found, terminal, allow_all) as session,
    ):
        await wait_for_catalog(found, session)
        waiting.end()
        for tested in wanted or _all_tested(session.catalog):
            done.append(await _run(terminal, found, session, tested, timeout_seconds))
            if not context.as_json:
                _tell(terminal, done[-1])
            if done[-1].outcome.kind is Kind.aborted:
                break
    ok = all(it.ok for it in done)
    if context.as_json:
        print_json({"directory": os.getcwd(), "ok": ok, "files": [it.to_dict() for it in done]})
    elif len(done) > 1:
        total = {name: sum(it.counts.get(name, 0) for it in done) for name in COUNTS}
        print(", ".join(f"{count} {name}" for name, count in total.items() if count or name == "passed"))
    if done[-1].outcome.kind is Kind.aborted:
        return Exit.ABORTED
    return Exit.OK if ok else Exit.FAILED


def _tested(file: str) -> _Tested:
    """What is meant by a word of the command line. Raises Failure."""
    named, export = file_of(file)
    path = named or tool_file(file)
    directory, name = os.path.split(path)
    if (stem := tested_by(name)) and not export:
        above = (os.path.dirname(directory),) if os.path.basename(directory) == TESTS else ()
        for place in (directory, *above):
            for tool in PYTHON.files_of(os.path.join(place, stem)):
                if os.path.isfile(tool):
                    return _Tested(tool, (path,))
    if not _has_runner(path):
        raise Misuse(f"{file} is no Python file.", "Tests of others: run them with their own runner.")
    if tests := tests_of(path):
        return _Tested(path, tests, export)
    tested = f", and tests no tool: there is no {stem}.py beside it" if stem else ""
    raise Misuse(
        f"{file} has no tests{tested}.",
        f"Its tests are functions called test_… in test_{tool_stem(path)}.py beside it, or in tests/ there.",
    )


def _has_runner(path: str) -> bool:
    kind = kind_of(path)
    return kind is not None and kind.runs_tests


def _all_tested(catalog: Catalog) -> list[_Tested]:
    """The tools of a catalog that have tests, also those that are broken. Raises Failure if there are none."""
    paths = {tool.path for tool in catalog.tools.values()} | {wrong.path for wrong in catalog.errors}
    found = [(path, tests_of(path)) for path in sorted(paths) if _has_runner(path)]
    if not any(tests for _, tests in found):
        raise Failure(
            Exit.FAILED,
            "no_tests",
            "The tools of this directory have no tests.",
            "The tests of lint.py are functions called test_… in test_lint.py beside it, or in tests/ there.",
        )
    return [_Tested(path, tests) for path, tests in found if tests]


async def _run(
    terminal: Terminal, found: Daemon, session: Session, tested: _Tested, timeout_seconds: float | None
) -> _Done:
    name = tested.tool(session.catalog)
    arguments = {"files": list(tested.tests), "width": columns_of(sys.stdout)}
    with interrupts(terminal, found, lambda: started(session, name, arguments, timeout_seconds)) as running:
        outcome = await watched(terminal, running)
    return _Done(tested, name, running.id, outcome)


def _tell(terminal: Terminal, done: _Done) -> None:
    for remark in outcome_text.remarks(done.tool, done.outcome, datetime.now().astimezone()):
        terminal.note(f"{remark}\n")
    ending = outcome_text.message(done.tool, done.outcome) or f"{clean(done.tool)}: no result"
    print(fitted(done.line() if done.counts else ending, sys.stdout), flush=True)
