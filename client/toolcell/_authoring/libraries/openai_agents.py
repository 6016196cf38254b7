"""Function tools of the OpenAI Agents SDK: `@function_tool` and `FunctionTool`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from toolcell._authoring.libraries.offers import Offer, is_imported
from toolcell._context.context import ToolContext
from toolcell._results.content import Image

IGNORED: Final = ("tool_input_guardrails", "tool_output_guardrails")
"""What the library's runner does around a call."""


def read(objects: Mapping[str, Any], module: str) -> Iterator[Offer]:
    """Yield the tools among objects that the file made itself, and those of its agents."""
    library: Any = import_module("agents")  # the file has imported it
    found: dict[int, Any] = {}
    for value in objects.values():
        if is_imported(value, module):
            continue
        tools: list[Any] = [value] if isinstance(value, library.FunctionTool) else []
        if isinstance(value, library.Agent):
            tools = list(value.tools)
        found.update((id(tool), tool) for tool in tools if isinstance(tool, library.FunctionTool))
    for tool in found.values():
        if getattr(tool, "is_enabled", True) is not False:
            ignored = [name for name in IGNORED if getattr(tool, name, None)]
            if callable(getattr(tool, "is_enabled", None)):
                ignored.append("is_enabled")
            options = {"description": tool.description}
            yield Offer(tool.name, _execute(tool), tool.params_json_schema, options, ignored=ignored)


def _execute(tool: Any) -> Callable[[dict[str, Any], ToolContext], Any]:
    make_context: Any = import_module("agents.tool_context").ToolContext

    async def run(arguments: dict[str, Any], context: ToolContext) -> Any:
        if getattr(tool, "needs_approval", False) is not False:
            await context.ask(f"Run {tool.name} with {json.dumps(arguments, ensure_ascii=False)}?")
        text = json.dumps(arguments)
        own = make_context(
            context=None, tool_name=tool.name, tool_call_id=context.call_id, tool_arguments=text
        )
        return _result(await tool.on_invoke_tool(own, text))

    return run


def _result(value: Any) -> Any:
    return [_part(part) for part in cast("Sequence[Any]", value)] if type(value) is list else _part(value)


def _part(part: Any) -> Any:
    """Return a part of an output: the SDK has classes for text and pictures."""
    kind = getattr(part, "type", None)
    if kind == "text":
        return part.text
    url = getattr(part, "image_url", None) or ""
    if kind == "image" and url.startswith("data:image/"):
        header, _, data = url.partition(",")
        return Image(data=base64.b64decode(data), format=header[len("data:") :].partition(";")[0])
    return part
