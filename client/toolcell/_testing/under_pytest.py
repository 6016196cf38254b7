"""Runs test files with pytest.

Only what lies beside the tool has a say: its `conftest.py`, and not the settings of the project, which are those of
another environment. A compiled test file is not read, because no trust in the tool's files covers it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator, Sequence
from typing import Any, Final

import pytest

from toolcell._results.errors import Aborted
from toolcell._testing.tally import Tally

OPTIONS: Final = (
    f"-c{os.devnull}",
    "--import-mode=append",  # a tool called `calendar` hides no module of the standard library
    "--verbose",
    "--no-header",
    "--color=no",
    "-pno:cacheprovider",
)


def run(files: Sequence[str], directory: str, tally: Tally, width: int) -> None:
    """Run the tests of some files on a terminal of so many columns; pytest prints what it prints.

    `directory` is that of the tool.
    """
    listener = _Listener(tally, width)
    options = [*OPTIONS, *_without_compiled_files(), f"--rootdir={directory}", f"--confcutdir={directory}"]
    code = pytest.main([*options, *files], plugins=[listener])
    if listener.aborted is not None:
        raise listener.aborted
    fine = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if code not in fine and not tally.counts["failed"]:
        tally.add("pytest", "failed", f"exited with {code:d}")


def _without_compiled_files() -> Sequence[str]:
    """Have pytest read no `__pycache__`; return the options without which it would."""
    rewrite = importlib.import_module("_pytest.assertion.rewrite")
    if not hasattr(rewrite, "_read_pyc"):
        # Another pytest: its messages have fewer values, and nothing compiled is run
        return ("--assert=plain",)
    setattr(rewrite, "_read_pyc", _nothing)  # noqa: B010  no part of its interface
    return ()


def _nothing(*_: object, **__: object) -> None:
    """Read no compiled file."""


class _Listener:
    """Counts what pytest reports, and ends the run when the call is aborted."""

    def __init__(self, tally: Tally, width: int) -> None:
        self.aborted: Aborted | None = None
        self._tally = tally
        self._width = width

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Fit the lines into the terminal."""
        session.config.get_terminal_writer().fullwidth = self._width

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
        """Notice an abort, which pytest takes for a failure of the test."""
        if call.excinfo is not None and isinstance(call.excinfo.value, Aborted):
            self.aborted = call.excinfo.value
            item.session.shouldstop = "aborted"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Make a failure of a file that exits while it is loaded, which pytest takes for an error of its own."""
        try:
            return (yield)
        except SystemExit as error:
            text = f"it called sys.exit({error.code!r}) while it was loaded"
            return pytest.CollectReport(collector.nodeid, "failed", text, [])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file that cannot be loaded."""
        if report.failed:
            self._tally.add(report.nodeid, "failed", _last_line(report.longreprtext))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once: its call, or what kept it from being called."""
        if report.failed:
            self._tally.add(report.nodeid, "failed", _message(report))
        elif report.skipped:
            self._tally.add(report.nodeid, "skipped")
        elif report.when == "call":
            self._tally.add(report.nodeid, "passed")


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message) if crash is not None else _last_line(report.longreprtext)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
