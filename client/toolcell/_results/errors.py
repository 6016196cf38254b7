"""What a tool raises, and what is raised in it or before it.

Three audiences. `ToolError` speaks to the model. `Aborted` speaks to the tool: it derives from BaseException, so
that `except Exception` in a tool does not swallow a Ctrl-C that somebody else pressed. `InvalidArguments` speaks
to the model about its own arguments, before any line of the tool has run.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Aborted", "Denied", "InvalidArguments", "ToolError"]

# A model mends its arguments from the first few complaints; more of them only fill its context.
PROBLEMS_SHOWN = 20


class ToolError(Exception):
    """Raise it to tell the model what went wrong; the message arrives unchanged."""

    def __init__(self, message: str, *, details: object = None) -> None:
        super().__init__(message)
        self.details = details


class Denied(ToolError):
    """A question was refused, or nobody was there to answer it."""


class Aborted(BaseException):
    """Raised in a synchronous tool that is being stopped; clean up in `finally` and let it pass."""


class InvalidArguments(Exception):
    """The arguments do not fit; `str()` is the message, `problems` pairs of a path and a sentence."""

    problems: tuple[tuple[str, str], ...]

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        merged: dict[str, list[str]] = {}
        for path, sentence in problems:
            sentences = merged.setdefault(path, [])
            if sentence not in sentences:
                sentences.append(sentence)
        # Several complaints about one place are the branches of a union: either would do.
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
