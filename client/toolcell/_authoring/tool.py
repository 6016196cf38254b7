"""How a function becomes a tool: the decorator, the specification's form, and their options.

`@tool` returns the function itself with a mark on it, so types stay, a test can call it and a class can carry it.
Nothing is checked here but what cannot be anything else than a mistake in the call itself: names, options and
schemas are judged when the file is loaded, in `_exports`, so that one bad tool does not take the others along.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from toolcell._context.context import ToolContext

__all__ = ["MARK", "Limits", "Options", "Tool", "tool"]

# The attribute that carries the options of a decorated function.
MARK = "__toolcell__"

F = TypeVar("F", bound=Callable[..., object])
M = TypeVar("M")


class Limits(TypedDict, total=False):
    """What a call may use; the same keys as in the configuration."""

    timeout: float
    queue: float
    cpu: float
    idle: float
    memory: int | str
    processes: int
    open_files: int
    file_size: int | str
    disk: int | str
    output_lines: int
    output_bytes: int | str


class Options(Limits, total=False):
    """What a tool may declare about itself."""

    name: str
    description: str
    isolation: Literal["worker", "session", "call"]
    output: Literal["head", "tail", "middle"]
    read_only: bool
    destructive: bool
    idempotent: bool
    network: bool | Sequence[str]
    secrets: Sequence[str]
    sandbox: Literal["baseline", "strict"]


class Tool:
    """A tool in the specification's form: arguments, a function of them and a context, options."""

    __slots__ = ("args", "execute", "line", "module", "options")

    def __init__(
        self,
        args: object,
        execute: Callable[[Any, ToolContext], object],
        options: Mapping[str, Any],
        *,
        module: str = "",
        line: int = 0,
    ) -> None:
        self.args = args
        self.execute = execute
        self.options = options
        self.module = module  # where it was made: a file exports its own tools, not those it imports
        self.line = line

    def __repr__(self) -> str:
        return f"Tool({self.options.get('description', '')!r}, line {self.line} of {self.module})"


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *, args: type[M], execute: Callable[[M, ToolContext], object], **options: Unpack[Options]
) -> Tool: ...
@overload
def tool(
    *,
    args: Mapping[str, Any] = ...,
    execute: Callable[[dict[str, Any], ToolContext], object],
    **options: Unpack[Options],
) -> Tool: ...
@overload
def tool(**options: Unpack[Options]) -> Callable[[F], F]: ...
def tool(function: Any = None, /, *, args: object = None, execute: Any = None, **options: Any) -> Any:
    """Make a tool: `@tool`, `@tool(timeout=60)`, or `tool(description=…, args=…, execute=…)`."""
    if execute is not None:
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  the file that makes the tool; inspect is heavy
        return Tool(args, execute, options, module=caller.f_globals.get("__name__", ""), line=caller.f_lineno)
    if args is not None:
        raise TypeError("tool(args=…) needs execute=…, a function of the arguments and a context")
    if function is not None:
        return _mark(function, options)

    def mark(function: Callable[..., object]) -> Callable[..., object]:
        return _mark(function, options)

    return mark


def _mark(function: F, options: Mapping[str, Any]) -> F:
    if isinstance(function, type) or not callable(function) or not hasattr(function, "__qualname__"):
        raise TypeError(
            f"@tool marks a function, and {function!r} is none; write @tool or @tool(timeout=60) above a def"
        )
    try:
        setattr(function, MARK, dict(options))
    except AttributeError:
        raise TypeError(
            f"{function!r} cannot be marked; put @tool above the def that it comes from"
        ) from None
    return function
