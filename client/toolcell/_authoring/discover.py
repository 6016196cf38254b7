"""The tools of a file that has run: found in its namespace, judged one by one.

`exports` is what a worker calls after it has executed a user's file. A tool that cannot be used becomes a Problem
and takes no other one along. What the file imported from elsewhere is not its own and is left alone, otherwise
`from other import helper` would export the same tool under a second name.

This is the heavy half of authoring: pydantic, inspect and dataclasses come with it, and a zygote has it loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast

from toolcell._arguments.parameters import SCHEMA_BYTES_MAX, InvalidToolDefinition, Parameters, from_args
from toolcell._authoring.factory import Host, adapted, exported_together
from toolcell._authoring.function import (
    Call,
    check_execute,
    is_async,
    line_of,
    read_function,
    yields,
)
from toolcell._authoring.libraries.offers import LOW_LEVEL, is_imported, is_low_level, offers
from toolcell._authoring.lost import lost
from toolcell._authoring.options import OPTIONS, checked
from toolcell._authoring.pending import resolver
from toolcell._authoring.rendering import Renderers, rendered
from toolcell._authoring.returns import Returns
from toolcell._authoring.session_events import ON_SESSION, SCHEMA, Handler, own_handler, teller
from toolcell._authoring.stream import streamed
from toolcell._authoring.tool import MARK, Tool
from toolcell._context.context import ToolContext
from toolcell._results.json_value import to_json
from toolcell._results.normalise import Result, normalise

# A tool travels in one message of at most 64 KiB, with its schema; hosts cut descriptions far earlier.
DESCRIPTION_BYTES_MAX = 8 * 1024
# A model cannot choose between more tools than this anyway.
TOOLS_MAX = 256
# The names that systems give to the schema of a plain object.
ARGUMENTS = ("args", "parameters", "inputSchema", "input_schema")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Export:
    """One tool, ready to run."""

    name: str
    description: str
    options: Mapping[str, Any]  # only what the file declared
    line: int
    is_async: bool
    _parameters: Parameters
    _call: Call
    _shapes: bool
    _host: Host | None = None  # of the factory that made it
    _returns: Returns | None = None  # None: nothing is known, or its value is text
    # Of what leads to resources and prompts of a server, and is no tool
    offers: tuple[Mapping[str, Any], ...] | None = None

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments; raises InvalidToolDefinition where the types have none."""
        return self._parameters.schema

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the structured value, an object; None where there is none, or no room for it in a message."""
        schema = None if self._returns is None else self._returns.schema
        if schema is None or len(to_json(schema)) + len(to_json(self.input_schema)) > SCHEMA_BYTES_MAX:
            return None
        return schema

    def check_schema(self) -> None:
        """Raise InvalidToolDefinition unless the arguments have a JSON Schema."""
        _ = self.input_schema

    def prepare(self) -> None:
        """Make now what else the first call has to wait for: what reads the arguments, and the schema of the result."""
        self._parameters.prepare()
        if self._returns is not None:
            _ = self._returns.sure

    def arguments(self, raw: bytes) -> Any:
        """Validate a JSON object for `invoke`; raises InvalidArguments and nothing else."""
        return self._parameters.read(raw)

    def invoke(self, arguments: Any, context: ToolContext) -> object:
        """Call the tool with what `arguments` gave; of an asynchronous tool the result is awaitable."""
        if self._host is not None:
            self._host.begin(context)
        return self._call(arguments, context)

    def normalise(self, value: object) -> Result:
        """What the tool returned as a Result, held against its schema; raises ToolError where it is none."""
        result = normalise(value, shapes=self._shapes)
        if self._returns is not None and self._returns.schema is not None and not result.is_error:
            if type(value) in self._returns.sure:
                result.fits = True
            elif result.details is None and value is not None:
                result.misfit = "it is text or other content, and no data"
            else:
                misfit = self._returns.misfit(result.details)
                result.fits, result.misfit = misfit == "", misfit or ""
        return result


@dataclass(frozen=True, slots=True)
class Problem:
    """A tool that cannot be used, or a remark on one that can; `line` is 0 where it is not known."""

    tool: str
    message: str
    line: int
    remark: bool = False


class Served(Protocol):
    """What takes the calls of tools that are not functions of this process."""

    @property
    def calls(self) -> int:
        """How many it takes at once."""
        ...


@dataclass(frozen=True, slots=True)
class Exports:
    """The tools of one file, and what is told of the events of a session; None if nothing is.

    `absence` says why there is no tool, where that is known. `served` is what takes the calls of all tools, several at once,
    where they are not functions of this process.
    """

    tools: tuple[Export, ...]
    problems: tuple[Problem, ...]
    on_session: Export | None = None
    absence: str = ""
    served: Served | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A tool in a namespace, not judged yet."""

    options: Mapping[str, Any]
    line: int
    function: Callable[..., object]
    args: object = None
    specified: bool = False  # execute(args, context), and not a function with parameters of its own
    renderers: Renderers | None = None
    on_session: Handler | None = None


def exports(
    namespace: Mapping[str, object], stem: str, *, describe: bool = True, pending: bool = False
) -> Exports:
    """The tools in the namespace of a file that has run.

    Args:
        namespace: The file's names.
        stem: The file's name without `.py`.
        describe: Whether a tool whose schema cannot be made is a problem. Making them takes as long as all the rest, so
            who only runs the tools leaves it out.
        pending: Whether the file may push pending actions, and so has a tool that decides about them.
    """
    tools: dict[str, Export] = {}
    problems: list[Problem] = []
    host = Host()
    handlers = [handler] if (handler := own_handler(namespace)) is not None else []
    candidates = [*_candidates(namespace, host)]
    if pending and candidates:
        resolve = _plain_object(resolver(host.pending, stem), "")
        assert resolve is not None
        candidates.append(([], resolve))
    for names, found in candidates:
        if isinstance(found, Problem):
            problems.append(found)
            continue
        if pending:
            found = replace(found, options={"isolation": "session", **found.options})
        name = _name(names, stem, found.options)
        try:
            if len(tools) == TOOLS_MAX:
                raise InvalidToolDefinition(f"the file has more than {TOOLS_MAX} tools")
            if name in tools:
                place = f"line {tools[name].line}" if tools[name].line else "the file"
                raise InvalidToolDefinition(
                    f"{place} has a tool of this name already; give one of them name='…'"
                )
            export = replace(_export(name, found), _host=host)
            if describe:
                export.check_schema()
            tools[name] = export
            if found.on_session is not None and found.on_session not in handlers:
                handlers.append(found.on_session)
        except InvalidToolDefinition as error:
            problems.append(Problem(name, str(error), found.line))
    if describe:
        used = [found.function for _, found in candidates if isinstance(found, _Found)]
        if not candidates and any(map(is_low_level, namespace.values())):
            problems.append(Problem("", LOW_LEVEL, 0))
        problems += (Problem("", message, line) for line, message in lost(namespace, used))
    return Exports(tuple(tools.values()), tuple(problems), _on_session(handlers) if handlers else None)


def _on_session(handlers: Sequence[Handler]) -> Export:
    """The export that tells the handlers of a file what happens to a session."""
    return Export(
        name=ON_SESSION,
        description="",
        options={},
        line=0,
        is_async=True,
        _parameters=from_args(SCHEMA),
        _call=teller(handlers),
        _shapes=True,
    )


def _candidates(namespace: Mapping[str, object], host: Host) -> Iterator[tuple[list[str], _Found | Problem]]:
    """Every tool once, in the order of the file, with all names that it has there."""
    module = str(namespace.get("__name__", ""))
    names: dict[int, list[str]] = {}
    for name, value in namespace.items():
        names.setdefault(id(value), []).append(name)
    taken: set[int] = set()
    for name, value in namespace.items():
        if names[id(value)][0] == name:
            found = _found(name, value, module)
            if found is not None:
                taken.add(id(value))
                yield names[id(value)], found
    for export, made in exported_together(namespace, lambda value: _found("", value) is not None, host):
        for name, index, value in made:
            if id(value) in taken:
                continue
            found = _found("", value)
            if found is None:
                yield [], Problem(name, f"{export} has an invalid tool at index {index}: {_NO_TOOL}", 0)
                continue
            named = {"name": name, **found.options} if name else found.options
            yield [getattr(found.function, "__name__", "tool")], replace(found, options=named)
    for offer in offers(namespace):
        if offer.problem:
            yield [], Problem(offer.name, offer.problem, offer.line)
            continue
        if offer.ignored:
            message = f"{' and '.join(offer.ignored)} of its library has no effect here"
            yield [], Problem(offer.name, message, offer.line, remark=True)
        options = {**offer.options, "name": offer.name}
        specified = offer.schema is not None
        yield [offer.name], _Found(options, offer.line, offer.function, offer.schema, specified=specified)


_NO_TOOL = "it is no function with @tool, and has not both a description and execute()"


def _found(name: str, value: object, module: str = "") -> _Found | None:
    """Return a tool that a module has made itself; of any module where it is empty."""
    try:
        return _judged(name, value, module)
    except Exception:  # noqa: BLE001  proxies, as of a web framework's request, raise whatever they are asked
        return None


def _judged(name: str, value: Any, module: str) -> _Found | None:
    if isinstance(value, Tool):
        if module and value.module != module:
            return None
        return _Found(value.options, value.line, value.execute, value.args, specified=True)
    options = _attribute(value, MARK)
    if isinstance(options, dict) and callable(value):
        own = not module or getattr(value, "__module__", None) == module
        return _Found(cast("dict[str, Any]", options), line_of(value), value) if own else None
    if name.startswith("_"):
        return None
    return _plain_object(value, module)


def _plain_object(value: object, module: str) -> _Found | None:
    """Anything with a description and a function `execute(args, context)`."""
    get = _reader(value)
    execute = get("execute")
    if not isinstance(get("description"), str) or not callable(execute):
        return None
    if _makes_tools(value):
        return None
    if module and getattr(execute, "__module__", None) != module and is_imported(value, module):
        return None
    options = {key: get(key) for key in OPTIONS if get(key) is not None and not callable(get(key))}
    if not isinstance(options.get("title"), str):  # other systems may mean something else by it
        options.pop("title", None)
    schema = next((given for key in ARGUMENTS if (given := get(key)) is not None), None)
    shown = Renderers(_function(get("render_call")), _function(get("render_result")))
    return _Found(
        options,
        line_of(execute),
        adapted(execute),
        schema,
        specified=True,
        renderers=shown if any(shown) else None,
        on_session=_function(get("on_session")),
    )


def _function(value: Any) -> Any:
    return value if callable(value) else None


def _reader(value: object) -> Callable[[str], Any]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get
    return partial(_attribute, value)


def _makes_tools(value: object) -> bool:
    """Whether it is a class whose instances are the tools: its execute needs one."""
    return isinstance(value, type) and not isinstance(vars(value).get("execute"), staticmethod | classmethod)


def _attribute(value: object, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001  properties and proxies in a tool's file may raise anything
        return None


def _name(names: list[str], stem: str, options: Mapping[str, Any]) -> str:
    """The explicit name, or the file's for the export that is called like it, or both."""
    explicit = options.get("name")
    if isinstance(explicit, str):
        return explicit
    if not {"default", stem, stem.replace("-", "_")}.isdisjoint(names):
        return stem
    return f"{stem}_{names[0]}"


def _export(name: str, found: _Found) -> Export:
    options = checked(found.options)
    if not _NAME.fullmatch(name) or "__" in name:
        raise InvalidToolDefinition(
            "a tool's name is 1 to 64 letters, digits, _ and -, without two _ in a row; give it name='…'"
        )
    if found.specified:
        check_execute(found.function)
        description, parameters, call, returns = "", from_args(found.args), found.function, None
    else:
        description, parameters, call, returns = read_function(found.function)
    if yields(found.function):
        call, returns = streamed(call, shapes=found.specified), None  # its annotation is of what it yields
    if found.renderers is not None:
        call = rendered(call, found.renderers)
    description = str(options.get("description", description))
    if len(description.encode(errors="replace")) > DESCRIPTION_BYTES_MAX:
        raise InvalidToolDefinition(
            f"its description has more than {DESCRIPTION_BYTES_MAX} bytes; say less, models read it every time"
        )
    return Export(
        name=name,
        description=description,
        options=options,
        line=found.line,
        is_async=is_async(found.function),
        _parameters=parameters,
        _call=call,
        _shapes=found.specified,
        _returns=returns,
    )
