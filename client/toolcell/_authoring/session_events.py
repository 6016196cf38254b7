"""What happens to a session, told to the tools of a file.

    def on_session(event, context):         # or a key of a plain object, beside `execute`
        if event.reason == "shutdown":
            index.close()

All handlers of a file are one export, which the daemon runs as it runs a tool. One that fails keeps no other from
running, and harms no session.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from toolcell._authoring.tool import MARK
from toolcell._context.context import ToolContext
from toolcell._results.errors import ToolError

ON_SESSION: Final = "on_session()"
"""The name of the export; no tool can have it."""
SCHEMA: Final = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "data": {"type": "object", "additionalProperties": True}},
    "required": ["reason", "data"],
}
"""Of its arguments."""


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """What has happened to the session of an agent.

    Attributes:
        reason: "start" and "shutdown", which every agent has; what else there is depends on the agent: "switch",
            "branch", "tree", "auto_compaction_start", "auto_compaction_end", "auto_retry_start", "auto_retry_end",
            "ttsr_triggered", "todo_reminder".
        data: What the agent says about it; empty for most.
    """

    reason: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __getitem__(self, name: str) -> Any:
        """Return "reason", or a value of `data`. Raises `KeyError`."""
        return self.reason if name == "reason" else self.data[name]


Handler: TypeAlias = Callable[[SessionEvent, ToolContext], object]


def own_handler(namespace: Mapping[str, object]) -> Handler | None:
    """Return the function `on_session` that a file defines, or None."""
    value = namespace.get("on_session")
    if not inspect.isfunction(value) or value.__module__ != namespace.get("__name__") or hasattr(value, MARK):
        return None
    return cast("Handler", value)


def teller(handlers: Sequence[Handler]) -> Callable[[Any, ToolContext], object]:
    """Return the function that tells all handlers of an event, in their order.

    It takes `{"reason": …, "data": {…}}`, and raises `ToolError` with what went wrong once all have been told.
    """

    async def tell(event: Any, context: ToolContext) -> None:
        described = SessionEvent(event["reason"], event["data"])
        failures: list[str] = []
        cause: Exception | None = None
        for handler in handlers:
            try:
                value = _called(handler, described, context)
                if inspect.isawaitable(value):
                    await value
            except Exception as error:  # noqa: BLE001  the tool's own code
                where = traceback.extract_tb(error.__traceback__)[-1]
                cause = cause or error
                failures.append(f"{type(error).__name__}: {error} (line {where.lineno} of {where.filename})")
        if failures:
            raise ToolError("; ".join(failures)) from cause

    return tell


def _called(handler: Handler, event: SessionEvent, context: ToolContext) -> object:
    """Call a handler of one or two parameters."""
    try:
        inspect.signature(handler).bind(event, context)
    except TypeError:
        return cast("Callable[[SessionEvent], object]", handler)(event)
    return handler(event, context)
