"""Tools that a file exports together: a list, a mapping, or a factory that makes them.

    tools = [search, tool(description=…, execute=…)]
    TOOLS = {"search": tool(description=…, execute=…)}

    def tools(host):                # also `default` or `factory`, and `async def`
        notes = Notes(host.directory)
        return [notes.add, {"name": "stats", "description": …, "parameters": {…}, "execute": execute}]

A list or mapping with nothing in it that is a tool is not taken for one: other libraries use these names as well.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from toolcell._arguments.parameters import from_args
from toolcell._authoring.pending import PendingActions
from toolcell._context.context import ToolContext
from toolcell._results.errors import ToolError
from toolcell._results.foreign import understood

if TYPE_CHECKING:
    from toolcell._context.exec import ExecResult
    from toolcell._context.ui import Ui

NAMES: Final = ("tools", "TOOLS", "default", "factory")
"""Under which a list, a mapping or a factory is looked for."""

Made = tuple[str, int, object]
"""A tool that was made: its name in a mapping, or empty; its index; the tool."""


class Host:
    """What a factory receives.

    Attributes:
        directory: The directory of the session, or of the project while its tools are described.
        cwd: The same as text.
        logger: Writes to the log of the tool.
        pending: The actions that wait for a decision.
    """

    def __init__(self) -> None:
        self._context: weakref.ref[ToolContext] | None = None  # nothing of a call outlives it
        self.cwd = os.getcwd()
        self.directory = Path(self.cwd)
        self.logger = logging.getLogger("tool")
        self.pending = PendingActions()

    def begin(self, context: ToolContext) -> None:
        """Take the context of a call that begins."""
        self._context = weakref.ref(context)

    @property
    def context(self) -> ToolContext | None:
        """That of the running call; None while there is none, as when the factory runs."""
        return None if self._context is None else self._context()

    @property
    def has_ui(self) -> bool:
        """Whether the agent of the running call can ask the user; False while there is none."""
        return self.context is not None and self.context.has_ui

    @property
    def ui(self) -> Ui:
        """The questions of the running call, as `context.ui`. Raises `ToolError` while there is none."""
        if (context := self.context) is None:
            raise ToolError("There is no call that could ask; use host.ui in a tool.")
        return context.ui

    async def exec(
        self,
        command: str | os.PathLike[str],
        args: Sequence[str | os.PathLike[str]] = (),
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  the program is killed, which a cancelled wait is not
        signal: object = None,
    ) -> ExecResult:
        """Run a program without a shell; see `ToolContext.exec`. Raises `ToolError` if it cannot be started."""
        from toolcell._context.exec import run

        where = self.directory if cwd is None else self.directory / cwd
        return await run(
            [command, *args], stdin=b"", cwd=where, env=env, timeout_seconds=timeout, check=False
        )

    def push_pending_action(
        self,
        label: str,
        apply: Callable[..., object],
        reject: Callable[..., object] | None = None,
        details: object = None,
    ) -> None:
        """Keep an action that `<file>_resolve` applies or discards; see `PendingActions.push`. Raises `ToolError`."""
        self.pending.push(label, apply, reject, details)

    def schema(self, args: object) -> dict[str, Any]:
        """Return the JSON Schema of a model, or of a mapping of names to types. Raises `InvalidToolDefinition`."""
        return from_args(args).schema


def exported_together(
    namespace: Mapping[str, object], is_tool: Callable[[object], bool], host: Host
) -> Iterator[tuple[str, Iterator[Made]]]:
    """Yield what a file exports together: the name of the export, and its tools.

    Args:
        namespace: The file's names, after it has run.
        is_tool: Whether a value is a tool by itself.
        host: What a factory receives.

    Raises:
        TypeError: A factory returned something that is neither a tool nor several.
        Exception: What a factory raises.
    """
    module = namespace.get("__name__")
    for name in NAMES:
        value = namespace.get(name)
        if value is None or is_tool(value):
            continue
        if _is_factory(name, value) and getattr(value, "__module__", None) == module:
            made = _made_by(cast("Callable[..., object]", value), host)
            several = _several(made, is_tool)
            if several is None:
                raise TypeError(
                    f"{name}() returned {type(made).__name__}; a factory returns one tool, a list of tools or a mapping"
                )
            yield f"{name}()", several
        elif (several := _several(value, is_tool)) is not None and _has_tools(value, is_tool):
            yield name, several


def adapted(execute: Callable[..., object]) -> Callable[[Any, ToolContext], object]:
    """Return `execute(arguments, context)` of one that takes `(call_id, arguments, on_update, context, signal)`.

    A third parameter called `signal` means the order `(call_id, arguments, signal, on_update, context)`. A function with
    at most two parameters is returned as it is.
    """
    try:
        parameters = [
            parameter.name.lstrip("_")
            for parameter in inspect.signature(execute).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        return execute
    if len(parameters) <= 2:
        return execute
    signal_first = parameters[2] in ("signal", "abort")

    def call(arguments: Any, context: ToolContext) -> object:
        def on_update(partial: object) -> None:
            context.update(understood(partial) or partial)

        rest: tuple[object, ...] = (on_update, context, context.abort)
        if signal_first:
            rest = (context.abort, on_update, context)
        return execute(*(context.call_id, arguments, *rest)[: len(parameters)])

    # Of which it has line and kind
    vars(call).update(__signature__=inspect.signature(call), __wrapped__=execute)
    return call


def _is_factory(name: str, value: object) -> bool:
    """Whether a value is a function of the host, or, called `tools`, of nothing."""
    if not inspect.isfunction(value):
        return False
    needed = [one for one in inspect.signature(value).parameters.values() if one.default is one.empty]
    return len(needed) == 1 or (not needed and name.lower() == "tools")


def _made_by(factory: Callable[..., object], host: Host) -> object:
    made = factory(host) if inspect.signature(factory).parameters else factory()
    return asyncio.run(_awaited(made)) if inspect.isawaitable(made) else made


async def _awaited(value: Awaitable[object]) -> object:
    return await value


def _several(value: object, is_tool: Callable[[object], bool]) -> Iterator[Made] | None:
    """Return the tools of a tool, a list or a mapping; None for anything else."""
    if is_tool(value):
        return iter([("", 0, value)])
    if isinstance(value, list | tuple):
        return (("", index, each) for index, each in enumerate(cast("Sequence[object]", value)))
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return ((str(name), index, each) for index, (name, each) in enumerate(items))
    return None


def _has_tools(value: object, is_tool: Callable[[object], bool]) -> bool:
    values = cast("Mapping[object, object]", value).values() if isinstance(value, Mapping) else value
    return any(is_tool(each) for each in cast("Sequence[object]", values))
