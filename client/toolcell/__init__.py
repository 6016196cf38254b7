"""What the author of a tool holds: the decorator, the context, and the ways to answer.

Importing this package is cheap, because every tool file, every test of one and every short command does it:
it loads neither asyncio nor pydantic nor logging. What needs them is loaded at its first use. Two names,
`Field` and `ExecResult`, come from such modules, so they are found through `__getattr__`; type checkers do not
see that function, otherwise they would accept any misspelt name from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcell._authoring.tool import Tool, tool
from toolcell._context.context import Abort, ToolContext
from toolcell._results.content import Content, Image, Link, ToolResult
from toolcell._results.errors import Aborted, Denied, ToolError

if TYPE_CHECKING:
    from pydantic import Field

    from toolcell._context.exec import ExecResult
else:

    def __getattr__(name: str) -> object:
        if name == "Field":
            from pydantic import Field

            return Field
        if name == "ExecResult":
            from toolcell._context.exec import ExecResult

            return ExecResult
        raise AttributeError(f"module 'toolcell' has no attribute {name!r}; it has {', '.join(__all__)}")


__all__ = [
    "Abort",
    "Aborted",
    "Content",
    "Denied",
    "ExecResult",
    "Field",
    "Image",
    "Link",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "tool",
]
