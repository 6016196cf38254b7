"""What came of the tests of a tool, in a form and a size that a call's result can carry."""

from __future__ import annotations

from typing import Any, Final, Literal

Verdict = Literal["passed", "failed", "skipped"]

FAILURES_MAX: Final = 50
"""Failures that are listed; all are counted, and their tracebacks are printed."""
NAME_CHARACTERS_MAX: Final = 200
MESSAGE_CHARACTERS_MAX: Final = 500


class Tally:
    """Counts the tests of one run, of "pytest" or "functions"."""

    def __init__(self, runner: str) -> None:
        self.runner = runner
        # The mutable state: the counts, and the first failures.
        self.counts: dict[Verdict, int] = {"passed": 0, "failed": 0, "skipped": 0}
        self.failures: list[dict[str, str]] = []

    @property
    def total(self) -> int:
        """The number of tests, and of files that could not be loaded."""
        return sum(self.counts.values())

    def add(self, test: str, verdict: Verdict, message: str = "") -> None:
        """Count a test; `message` is the first line of why it failed."""
        self.counts[verdict] += 1
        if verdict == "failed" and len(self.failures) < FAILURES_MAX:
            shown = message.strip().partition("\n")[0][:MESSAGE_CHARACTERS_MAX]
            self.failures.append({"test": test[:NAME_CHARACTERS_MAX], "message": shown})

    def to_json(self) -> dict[str, Any]:
        """Return the details of the call's result."""
        counts = {str(verdict): count for verdict, count in self.counts.items()}
        return {"runner": self.runner, **counts, "failures": self.failures}
