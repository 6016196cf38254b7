"""The API for tool authors: the decorator `tool`, the context of a call, result types and exceptions.

Importing this package is cheap, because every tool file, every test of one and every short command does it:
it loads neither asyncio nor pydantic nor logging. Modules that need them are loaded at their first use. Three names,
`Field`, `ExecResult` and `SessionEvent`, come from such modules, so `__getattr__` imports them; it is hidden from type checkers,
which would otherwise accept any misspelt name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcell._authoring.tool import Tool, tool
from toolcell._context.context import Abort, ToolContext
from toolcell._results.content import Content, File, Image, Link, ToolResult
from toolcell._results.errors import Aborted, Denied, ToolError

if TYPE_CHECKING:
    from pydantic import Field

    from toolcell._authoring.session_events import SessionEvent
    from toolcell._context.exec import ExecResult
else:

    def __getattr__(name: str) -> object:
        if name == "Field":
            from pydantic import Field

            return Field
        if name == "ExecResult":
            from toolcell._context.exec import ExecResult

            return ExecResult
        if name == "SessionEvent":
            from toolcell._authoring.session_events import SessionEvent

            return SessionEvent
        raise AttributeError(f"module 'toolcell' has no attribute {name!r}; it has {', '.join(__all__)}")


__all__ = [
    "Abort",
    "Aborted",
    "Content",
    "Denied",
    "ExecResult",
    "Field",
    "File",
    "Image",
    "Link",
    "SessionEvent",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "tool",
]
