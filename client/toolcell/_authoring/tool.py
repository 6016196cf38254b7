"""The decorator `@tool`, the class `Tool` and the types of their options.

`@tool` returns the function itself with an attribute set, so its type stays, tests can call it and methods can have it.
Only mistakes in the call of `tool` itself are errors here. Names, options and schemas are checked when the file is
loaded, in `discover`, so that one invalid tool does not prevent the others from loading.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from toolcell._context.context import ToolContext

# The attribute that carries the options of a decorated function.
MARK = "__toolcell__"
# The list of the functions that a module has decorated, a variable of that module.
MARKED = "__toolcell_marked__"

F = TypeVar("F", bound=Callable[..., object])
M = TypeVar("M")


class Limits(TypedDict, total=False):
    """The limits of a call: the same keys as in `[defaults]`, `[max]` and `[tool.NAME]` of the configuration.

    Times are in seconds, or text such as "90s", "5m" or "500ms". Sizes are in bytes, or text such as "512MiB". "off" is no
    limit. The defaults are those of the shipped configuration; a key that is left out keeps the configured value.
    """

    timeout: float | str
    """Seconds of running time; time spent in `ask()` does not count. In a call's limits it includes the queue. Default: 120."""
    queue: float | str
    """Seconds to wait for a worker. Default: 30."""
    cpu: float | str
    """Seconds of processor time of all the call's processes together. Default: off."""
    idle: float | str
    """Seconds without output, update or progress. Default: off."""
    memory: int | str
    """Memory of all the call's processes together, in bytes or as text such as "512MiB". Default: 512MiB."""
    processes: int
    """Number of processes and threads of the call. Default: 64."""
    open_files: int
    """Number of open files of each process. Default: 1024."""
    file_size: int | str
    """Size of the largest file that the tool may write, in bytes or as text such as "1GiB". Default: 1GiB."""
    disk: int | str
    """Space in the private temporary directory, in bytes or as text such as "1GiB". Default: 256MiB."""
    output_lines: int
    """Lines of output that the model reads; the full output is stored. Default: 2000."""
    output_bytes: int | str
    """Bytes of output that the model reads; the full output is stored. Default: 50000."""


class Options(Limits, total=False):
    """The options of a tool: its limits, its name and description, its isolation, its hints and its needs.

    Limits and needs are requests: the user's configuration decides what the tool gets.
    """

    name: str
    """The tool's name, `^[a-zA-Z0-9_-]{1,64}$` without "__". Default: the file's stem for the export named like the file
    or `default`, else `<file>_<export>`."""
    description: str
    """The text that the model reads. Default: the docstring without its `Args:` section."""
    title: str
    """A name for people, one line of at most 200 characters, where their agent shows one. Default: none."""
    isolation: Literal["worker", "session", "call"]
    """The lifetime of the worker process: shared by all sessions (the default), one per session, or one per call."""
    output: Literal["head", "tail", "middle"]
    """Which part of a too long output the model reads."""
    read_only: bool
    """True: the tool gets no write access except to its private /tmp, and agents may run it in parallel. Default: False."""
    destructive: bool
    """A hint for the agent: whether the tool deletes or overwrites data. Default: nothing is said."""
    idempotent: bool
    """True: the call may be repeated after an internal failure. Default: False."""
    ends_turn: bool
    """True: a success ends the agent's turn, so that the model says nothing after it. Copilot obeys it. Default: False."""
    programs: bool
    """False: the tool starts no programs, and its cell refuses to start any. Default: True."""
    network: bool | Sequence[str]
    """The host names that the tool connects to, or True for all. Default: none."""
    secrets: Sequence[str]
    """The names of the configured secrets that the tool needs in `os.environ`. Default: none."""
    sandbox: Literal["baseline", "strict"]
    """The sandbox profile to run in. Default: the configured profile."""


class Tool:
    """A tool made with `tool(execute=…)`: export it as a module attribute.

    Attributes:
        args: The argument model, the JSON Schema or mapping of types, or None for no arguments.
        execute: The function, called as `execute(arguments, context)`.
        options: The options as given.
        module: The module that made the tool; a file exports only its own tools.
        line: The line that made the tool, for messages; 0 if unknown.
    """

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
        self.module = module
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
    """Declare a tool: `@tool`, `@tool(timeout=60)`, or `tool(description=…, args=…, execute=…)`.

    As a decorator it returns the function itself, marked as a tool; with `execute` it returns a `Tool`.

    Args:
        function: The function to mark. Its parameters are the tool's arguments, except the one annotated `ToolContext`.
        args: Only with `execute`: a model class, a mapping of names to types, or a JSON Schema. Default: no arguments.
        execute: A function `execute(arguments, context)`, sync or async, to use instead of a decorated one.
        **options: The keys of `Options`, including those of `Limits`.

    Raises:
        TypeError: `args` without `execute`, or the marked object is not a function. All other mistakes are
            reported when the file is loaded.
    """
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
        raise TypeError(f"@tool marks a function, and {_other(function)}")
    try:
        setattr(function, MARK, dict(options))
    except AttributeError:
        raise TypeError(
            f"{function!r} cannot be marked; put @tool above the def that it comes from"
        ) from None
    names = getattr(function, "__globals__", None)
    if isinstance(names, dict):
        cast("dict[str, Any]", names).setdefault(MARKED, []).append(function)
    return function


def _other(given: object) -> str:
    """What was marked that is no function, and what to write."""
    if isinstance(given, type):
        return f"{given.__name__} is a class; write @tool above a def that makes an object of it"
    if isinstance(given, classmethod):
        return "a classmethod is not one; write @classmethod above @tool"
    if callable(given):
        return (
            f"an object of the class {type(given).__name__} is not one; write @tool above a def that calls it"
        )
    shown = (
        repr(given)[:60]
        if isinstance(given, str | int | None)
        else f"an object of the class {type(given).__name__}"
    )
    return f"{shown} is not one; write @tool or @tool(timeout=60) above a def"
