"""Results in the form of Squad: a text for the model, and whether it is a success, never an exception."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec

from toolcell import ToolError, ToolResult

TEXT_BYTES_MAX = 10 * 1024
"""Of the text for the model."""

P = ParamSpec("P")


def success(text: str, **details: Any) -> ToolResult:
    """Return a result that is a success."""
    return ToolResult(text, details={"resultType": "success", **details})


def failure(text: str, error: str) -> ToolResult:
    """Return a result that is a failure; `error` is a word for programs."""
    return ToolResult(text, details={"resultType": "failure", "error": error}, is_error=True)


def squad_results(
    doing: str,
) -> Callable[[Callable[P, Awaitable[ToolResult]]], Callable[P, Awaitable[ToolResult]]]:
    """Make every expected exception of a tool a failure that begins with what it was doing."""

    def decorate(function: Callable[P, Awaitable[ToolResult]]) -> Callable[P, Awaitable[ToolResult]]:
        @functools.wraps(function)
        async def wrapped(*args: P.args, **kwargs: P.kwargs) -> ToolResult:
            try:
                return await function(*args, **kwargs)
            except ToolError as error:
                return failure(f"{doing}: {error}", "refused")
            except OSError as error:
                return failure(f"{doing}: {error.strerror}", "io")

        return wrapped

    return decorate
