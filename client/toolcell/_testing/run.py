"""The call that runs the tests of a tool: in place of the tool, in the tool's own cell.

The worker has loaded the tool's file as for any other call, so that a test that imports it gets the same module.
"""

from __future__ import annotations

import importlib.util
import os

from toolcell._authoring.discover import Export, exports
from toolcell._authoring.tool import tool
from toolcell._results.content import ToolResult
from toolcell._results.errors import ToolError
from toolcell._testing import functions
from toolcell._testing.tally import Tally

WIDTH = 80


def tests_of(directory: str) -> Export:
    """Return what is called in place of a tool to run its tests."""

    @tool
    def run_tests(files: list[str], width: int = WIDTH) -> ToolResult:
        if importlib.util.find_spec("pytest") is not None:
            from toolcell._testing import under_pytest

            tally = Tally("pytest")
            under_pytest.run(files, directory, tally, width)
        else:
            tally = Tally("functions")
            functions.run(files, tally)
        return _result(tally, files)

    (export,) = exports({"__name__": __name__, "run_tests": run_tests}, "run_tests", describe=False).tools
    return export


def _result(tally: Tally, files: list[str]) -> ToolResult:
    """Return the counts. Raises `ToolError` unless every test has passed or was skipped, and there is one."""
    details = tally.to_json()
    failed = tally.counts["failed"]
    if not tally.total:
        raise ToolError(f"No test in {', '.join(map(os.path.basename, files))}.", details=details)
    if failed:
        raise ToolError(f"{failed} of {tally.total} failed.", details=details)
    return ToolResult(f"{tally.counts['passed']} of {tally.total} passed.", details=details)
