"""Tools of smolagents: `@tool` and subclasses of `Tool`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from toolcell._authoring.libraries.offers import Offer, is_imported
from toolcell._context.context import ToolContext
from toolcell._results.content import Image

TYPES: Final[Mapping[Any, Any]] = {"image": "string", "audio": "string", "any": None}
"""Types of smolagents that JSON Schema does not have; a picture or a sound is given as a path."""


def read(objects: Mapping[str, Any], module: str) -> Iterator[Offer]:
    """Yield the tools among objects that the file made itself."""
    library: Any = import_module("smolagents")  # the file has imported it
    for value in objects.values():
        if isinstance(value, library.Tool) and not is_imported(value, module):
            yield Offer(value.name, _execute(value), _schema(value), {"description": value.description})


def _schema(tool: Any) -> Mapping[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, described in tool.inputs.items():
        own = {key: item for key, item in described.items() if key != "nullable"}
        kind = TYPES.get(own.get("type"), own.get("type"))
        own.pop("type", None)
        nullable = bool(described.get("nullable"))
        if kind is not None:
            own = {"type": [kind, "null"] if nullable and isinstance(kind, str) else kind, **own}
        properties[name] = own
        if not nullable:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def _execute(tool: Any) -> Callable[[dict[str, Any], ToolContext], Any]:
    def run(arguments: dict[str, Any], context: ToolContext) -> Any:  # noqa: ARG001  every tool gets one
        if not tool.is_initialized:
            tool.setup()
            tool.is_initialized = True
        return _result(tool.forward(**arguments))

    return run


def _result(value: Any) -> Any:
    """Return a value; a picture, which is PIL's or wraps one, as its bytes."""
    raw = value.to_raw() if hasattr(value, "to_raw") else value
    if hasattr(raw, "save") and hasattr(raw, "convert"):
        data = io.BytesIO()
        raw.save(data, "PNG")
        return Image(data=data.getvalue(), format="png")
    return raw
