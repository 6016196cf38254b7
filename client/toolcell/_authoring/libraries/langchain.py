"""LangChain's tools: `@tool` of langchain_core, `StructuredTool` and subclasses of `BaseTool`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from toolcell._authoring.libraries.offers import Offer, is_imported
from toolcell._context.context import ToolContext
from toolcell._results.content import ToolResult
from toolcell._results.errors import ToolError

__all__ = ["read"]


def read(objects: Mapping[str, Any], module: str) -> Iterator[Offer]:
    """Yield the tools among objects that the file made itself."""
    library: Any = import_module("langchain_core.tools")  # the file has imported it
    for value in objects.values():
        if isinstance(value, library.BaseTool) and not is_imported(value, module):
            yield Offer(
                value.name,
                _execute(value),
                _schema(value),
                {"description": value.description},
            )


def _schema(tool: Any) -> Mapping[str, Any]:
    schema = tool.tool_call_schema
    return cast("Mapping[str, Any]", schema) if isinstance(schema, dict) else schema.model_json_schema()


def _execute(tool: Any) -> Callable[[dict[str, Any], ToolContext], Any]:
    refusal: type[Exception] = import_module("langchain_core.tools").ToolException

    def request(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        # As a call of a model's: the result is then a message, with the artifact if the tool has one.
        return {"type": "tool_call", "id": context.call_id, "name": tool.name, "args": arguments}

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
