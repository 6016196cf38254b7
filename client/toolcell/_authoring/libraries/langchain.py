"""LangChain's tools: `@tool` of langchain_core, `StructuredTool` and subclasses of `BaseTool`.

An agent of LangChain gives tools arguments that the model does not see. What is known here is given: the id of the call, a
runtime, a state without values. A tool that needs more, such as a store or an argument of its own program, is refused.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from toolcell._authoring.libraries.offers import Offer, is_imported
from toolcell._context.context import ToolContext
from toolcell._results.content import ToolResult
from toolcell._results.errors import ToolError


def read(objects: Mapping[str, Any], module: str) -> Iterator[Offer]:
    """Yield the tools among objects that the file made itself."""
    library: Any = import_module("langchain_core.tools")  # the file has imported it
    for value in objects.values():
        if isinstance(value, library.BaseTool) and not is_imported(value, module):
            makers, problem = _injected(value)
            yield Offer(
                value.name,
                _execute(value, makers),
                _schema(value),
                {"description": value.description, **({"ends_turn": True} if value.return_direct else {})},
                problem=problem,
            )


def _schema(tool: Any) -> Mapping[str, Any]:
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return cast("Mapping[str, Any]", schema)
    made: dict[str, Any] = schema.model_json_schema()
    # LangChain's schema has the names of fields, and its validation takes their aliases.
    fields = getattr(tool.args_schema, "model_fields", {}).items()
    names = {
        name: field.validation_alias for name, field in fields if isinstance(field.validation_alias, str)
    }
    properties = {names.get(name, name): part for name, part in made.get("properties", {}).items()}
    return {
        **made,
        "properties": properties,
        "required": [names.get(name, name) for name in made.get("required", ())],
    }


def _injected(tool: Any) -> tuple[Mapping[str, Callable[[ToolContext], object]], str]:
    """Return the functions that make the arguments which LangChain injects, by name, and why one cannot be made; empty for none."""
    makers: dict[str, Callable[[ToolContext], object]] = {}
    for name, (hint, needed) in _annotations(tool).items():
        kind, marker = _marker(hint)
        match kind:
            case "ToolRuntime":
                makers[name] = partial(_runtime, marker)
            case "InjectedState" if getattr(marker, "field", None) is None:
                makers[name] = lambda _: {}
            case "" | "InjectedToolCallId":
                pass  # the second is taken from the request
            case _ if needed:
                return {}, (
                    f"its parameter {name!r} ({kind}) is given by the program that runs a LangChain agent, and there is "
                    "none here; give it a default, or take it out"
                )
            case _:
                pass
    return makers, ""


def _annotations(tool: Any) -> Mapping[str, tuple[Any, bool]]:
    """The hint of each parameter, of the schema and of the function, and whether it needs a value."""
    found: dict[str, tuple[Any, bool]] = {}
    own = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    for function in [own] if own is not None else [tool._run, tool._arun]:
        try:
            hints = get_type_hints(function, include_extras=True)
            parameters = inspect.signature(function).parameters
        except Exception:  # noqa: BLE001  its annotations are the tool's code
            continue
        for name, parameter in parameters.items():
            found[name] = hints.get(name), parameter.default is parameter.empty
    for name, field in getattr(tool.args_schema, "model_fields", {}).items():
        hint = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        if name not in found or _marker(hint)[0]:
            found[name] = hint, field.is_required()
    return found


def _marker(hint: Any) -> tuple[str, Any]:
    """The name of the class by which a parameter is injected, and the marker itself; "" for any other parameter."""
    parts: list[Any] = [hint, *get_args(hint)]
    for name in ("ToolRuntime", "InjectedToolCallId", "InjectedState", "InjectedStore", "InjectedToolArg"):
        for part in parts:
            kind: Any = next(
                (each for each in (part, get_origin(part)) if isinstance(each, type)), part.__class__
            )
            if any(base.__name__ == name and _is_library(base) for base in kind.__mro__):
                return name, kind if name == "ToolRuntime" else part
    return "", None


def _is_library(kind: type[Any]) -> bool:
    return kind.__module__.partition(".")[0] in ("langchain", "langchain_core", "langgraph")


def _runtime(kind: Any, context: ToolContext) -> object:
    """A runtime without a graph: what it writes is an update of the call."""
    known: dict[str, Any] = {
        "state": {},
        "context": None,
        "config": {"tags": [], "metadata": {}, "configurable": {}},
        "stream_writer": context.update,
        "tool_call_id": context.call_id,
        "store": None,
    }
    return kind(
        **{field.name: known[field.name] for field in dataclasses.fields(kind) if field.name in known}
    )


def _execute(
    tool: Any, makers: Mapping[str, Callable[[ToolContext], object]]
) -> Callable[[dict[str, Any], ToolContext], Any]:
    refusal: type[Exception] = import_module("langchain_core.tools").ToolException

    def request(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        # As a call of a model's: the result is then a message, with the artifact if the tool has one.
        given = arguments | {name: make(context) for name, make in makers.items()}
        return {"type": "tool_call", "id": context.call_id, "name": tool.name, "args": given}

    async def run_async(arguments: dict[str, Any], context: ToolContext) -> Any:
        try:
            return _result(await tool.ainvoke(request(arguments, context)))
        except refusal as error:
            raise ToolError(str(error)) from error

    def run(arguments: dict[str, Any], context: ToolContext) -> Any:
        try:
            return _result(tool.invoke(request(arguments, context)))
        except refusal as error:
            raise ToolError(str(error)) from error

    has_coroutine = getattr(tool, "coroutine", None) is not None or "_arun" in vars(tool.__class__)
    return run_async if has_coroutine else run


def _result(message: Any) -> Any:
    content = getattr(message, "content", message)
    artifact = getattr(message, "artifact", None)
    failed = getattr(message, "status", "success") == "error"
    if isinstance(content, list):
        parts = cast("Sequence[Any]", content)
        content = "\n".join(_text(part) for part in parts)
    if artifact is None and not failed:
        return content
    return ToolResult(content, details=_as_data(artifact), is_error=failed)


def _text(part: Any) -> str:
    return str(part["text"] if hasattr(part, "keys") and "text" in part else part)


def _as_data(value: Any) -> Any:
    """Return an artifact, which may be any object, as data; its text where it is none."""
    from toolcell._results.json_value import to_json

    if value is None:
        return None
    try:
        to_json(value)
    except ToolError:
        return str(value)
    return value
