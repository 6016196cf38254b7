"""The API for tool authors: the decorator `tool`, the context of a call, result types and exceptions.

Importing this package loads nothing: every tool file, every test of one and every command does it, and `toolcell call`
is a process of its own for each call. A name is loaded when it is first used, `from toolcell import tool` included.
`__getattr__` is hidden from type checkers, which would otherwise accept any misspelt name.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pydantic import Field

    from toolcell._authoring.session_events import SessionEvent
    from toolcell._authoring.tool import Tool, tool
    from toolcell._context.context import Abort, ToolContext
    from toolcell._context.exec import ExecResult
    from toolcell._results.content import Content, File, Image, Link, ToolResult
    from toolcell._results.errors import Aborted, Denied, ToolError
else:
    from toolcell._lazy import lazy as _lazily

    _MODULES = {
        "pydantic": ("Field",),
        "toolcell._authoring.session_events": ("SessionEvent",),
        "toolcell._authoring.tool": ("Tool", "tool"),
        "toolcell._context.context": ("Abort", "ToolContext"),
        "toolcell._context.exec": ("ExecResult",),
        "toolcell._results.content": ("Content", "File", "Image", "Link", "ToolResult"),
        "toolcell._results.errors": ("Aborted", "Denied", "ToolError"),
    }
    __getattr__, __dir__ = _lazily(__name__, globals(), _MODULES)


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
