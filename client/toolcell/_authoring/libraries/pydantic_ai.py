"""Tools of Pydantic AI: `Tool`, `FunctionToolset`, and what an `Agent` was given with `@agent.tool`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, cast

from toolcell._authoring.libraries.offers import Offer, is_imported
from toolcell._context.context import ToolContext
from toolcell._results.content import ToolResult
from toolcell._results.errors import ToolError

IGNORED: Final = ("prepare", "args_validator")
"""What an agent of the library asks before it calls a tool."""


def read(objects: Mapping[str, Any], module: str) -> Iterator[Offer]:
    """Yield the tools among objects that the file made itself."""
    library: Any = import_module("pydantic_ai")  # the file has imported it
    found: dict[int, Any] = {}
    for value in objects.values():
        if is_imported(value, module):
            continue
        tools: list[Any] = []
        if isinstance(value, library.Tool):
            tools = [value]
        elif isinstance(value, library.FunctionToolset):
            tools = list(value.tools.values())
        elif isinstance(value, library.Agent):
            for toolset in value.toolsets:
                tools += (
                    getattr(toolset, "tools", {}).values()
                    if isinstance(toolset, library.FunctionToolset)
                    else ()
                )
        found.update((id(tool), tool) for tool in tools)
    for tool in found.values():
        options = {"description": tool.description or "", "timeout": getattr(tool, "timeout", None)}
        declared = {key: value for key, value in options.items() if value is not None}
        ignored = [name for name in IGNORED if getattr(tool, name, None)]
        schema = tool.function_schema.json_schema
        yield Offer(tool.name, _execute(tool), schema, declared, ignored=ignored)


def _execute(tool: Any) -> Callable[[dict[str, Any], ToolContext], Any]:
    refusal: type[Exception] = import_module("pydantic_ai").ModelRetry

    async def run(arguments: dict[str, Any], context: ToolContext) -> Any:
        if tool.requires_approval:
            await context.ask(f"Run {tool.name} with {json.dumps(arguments, ensure_ascii=False)}?")
        schema = tool.function_schema
        read = schema.validator.validate_python(arguments)
        own = _run_context(tool, context) if schema.takes_ctx else None
        try:
            value = await schema.call(read, own)
        except refusal as error:
            raise ToolError(str(error)) from error
        if type(value).__name__ == "ToolReturn":
            return ToolResult(value.return_value, metadata=_mapping(value.metadata))
        return value

    return run


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


def _run_context(tool: Any, context: ToolContext) -> Any:
    """Return what a tool is told of the run, of which there is no model and there are no dependencies here."""
    make_context: Any = import_module("pydantic_ai").RunContext
    usage: Any = import_module("pydantic_ai.usage").RunUsage()
    return make_context(deps=None, model=None, usage=usage, tool_call_id=context.call_id, tool_name=tool.name)
