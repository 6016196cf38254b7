"""The strategy `file-read`: the text of one file below a base directory; `read_below` reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from toolcell import ToolContext, ToolError
from toolcell._plugins.models import FileReadHandler
from toolcell._plugins.read_below import read_below
from toolcell._plugins.strategy import Strategy
from toolcell._plugins.values import FieldError, checked, names_of, schema_of


def make(handler: FileReadHandler, properties: Mapping[str, Any], root: str) -> Strategy:
    """Return what runs a tool of this handler.

    Args:
        properties: The properties of the tool's inputSchema.
        root: The directory of the project that the file belongs to; "" is the session's.

    Raises:
        FieldError: The base is a template, or there is no parameter `path`.
    """
    if names_of("handler.basePath", handler.base_path, properties):
        raise FieldError("handler.basePath", "takes no parameters, because they would choose the directory")
    if schema_of(properties, "path").get("type") != "string":
        raise FieldError(
            "inputSchema.properties.path", "is missing; a file-read tool takes the path as a string"
        )

    def execute(arguments: Mapping[str, Any], context: ToolContext) -> str:
        values = checked(arguments, properties)
        if not values.get("path"):
            raise ToolError("Missing required parameter: path")
        base = os.path.join(root or context.worktree, os.path.expanduser(handler.base_path))
        return read_below(os.path.normpath(base), values["path"], handler.max_size)

    return Strategy(execute, {"read_only": True, "programs": False})
