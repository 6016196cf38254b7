"""The exceptions of tools.

A tool raises `ToolError` with a message for the model. `Aborted` is raised in a tool to stop it: it derives from
BaseException, so that `except Exception` in a tool does not swallow it. `InvalidArguments` is raised before the tool
runs, with a message for the model.
"""

from __future__ import annotations

from collections.abc import Iterable

MISFIT = "returned what its return annotation does not allow: "
"""In the log of a tool, after its name and before what is wrong; an MCP host is told it with the value."""

# The first few messages are enough for a model to correct its arguments; more only fill its context.
PROBLEMS_SHOWN = 20


class ToolError(Exception):
    """Raise it to report a failure to the model; the message is passed on unchanged.

    Args:
        message: The text for the model.
        details: Data for programs, as JSON, which becomes `Outcome.details`; default: none.
    """

    def __init__(self, message: str, *, details: object = None) -> None:
        super().__init__(message)
        self.details = details


class Denied(ToolError):
    """Raised by `ToolContext.ask` when the user refuses or the agent cannot ask; uncaught, the Outcome is `denied`."""


class Aborted(BaseException):
    """Raised in a synchronous tool that is being stopped; clean up in `finally` and do not catch it.

    A tool that catches it may return its partial result, which becomes the content of the Outcome.
    """


class InvalidArguments(Exception):
    """The arguments do not match the schema; `str()` is the message, `problems` pairs of a path and a sentence."""

    problems: tuple[tuple[str, str], ...]

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        merged: dict[str, list[str]] = {}
        for path, sentence in problems:
            sentences = merged.setdefault(path, [])
            if sentence not in sentences:
                sentences.append(sentence)
        # Several messages for one place are the branches of a union: either would do.
        every = [(path, ", or ".join(sentences)) for path, sentences in merged.items()]
        self.problems = tuple(every[:PROBLEMS_SHOWN])
        super().__init__(_message(self.problems, len(every)))


def _message(shown: tuple[tuple[str, str], ...], count: int) -> str:
    if len(shown) == 1 and not shown[0][0]:
        return f"the arguments {shown[0][1]}, the tool did not run."
    lines = [f"{count} {'argument is' if count == 1 else 'arguments are'} wrong, the tool did not run."]
    lines += [f"  {path or 'all together'}: {sentence}" for path, sentence in shown]
    if count > len(shown):
        lines.append(f"  and {count - len(shown)} more")
    return "\n".join(lines)
