"""Both type checkers accept the tools of the documentation and find every mistake.

The mistakes are a text file, so that the project's own run of the checkers does not stumble over them.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcell._authoring.discover import exports

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

# A cold run reads pydantic; it takes half a minute on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Check = Callable[[Path], set[int]]


def output(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], check=False, cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def pyright(file: Path) -> set[int]:
    """The lines with an error."""
    settings = {"include": [file.name], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (file.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    text = output("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(file.parent))
    report = json.loads(text)
    assert report["summary"]["filesAnalyzed"] == 1
    return {
        problem["range"]["start"]["line"] + 1
        for problem in report["generalDiagnostics"]
        if problem["severity"] == "error"
    }


def mypy(file: Path) -> set[int]:
    """The lines with an error."""
    text = output(
        "mypy", "--strict", "--no-error-summary", "--output", "json", "--config-file", "", str(file)
    )
    problems = [json.loads(line) for line in text.splitlines()]
    assert all(Path(problem["file"]).name == file.name for problem in problems)
    return {problem["line"] for problem in problems if problem["severity"] == "error"}


checkers = pytest.mark.parametrize("lines_with_errors", [pyright, mypy])


@checkers
def test_every_mistake_is_an_error_and_nothing_else(lines_with_errors: Check, tmp_path: Path) -> None:
    text = (HERE / "mistakes.txt").read_text()
    marked = {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# error")}
    assert len(marked) == 12
    file = tmp_path / "mistakes.py"
    file.write_text(text)
    assert lines_with_errors(file) == marked


@checkers
def test_the_tools_of_the_documentation_are_clean(lines_with_errors: Check, tmp_path: Path) -> None:
    file = tmp_path / "good.py"
    file.write_text((HERE / "good.py").read_text())
    assert lines_with_errors(file) == set()


def test_the_tools_of_the_documentation_load() -> None:
    namespace: dict[str, object] = {"__name__": "good"}
    exec(compile((HERE / "good.py").read_text(), "good.py", "exec"), namespace)
    found = exports(namespace, "good")
    assert not found.problems
    assert [export.name.removeprefix("good_") for export in found.tools] == [
        "words",
        "lint",
        "index",
        "drop",
        "order",
        "plot",
        "issues",
        "greet",
    ]
