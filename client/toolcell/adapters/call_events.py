"""What an application hears of the tools while its agent runs: that one began, and how it ended.

The shape is that of the events which agents' own user interfaces draw from, with the call's real id in place of a guess
by order. `to_dict` is for those that want JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toolcell.client import Outcome


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A tool is called."""

    session_id: str
    """The agent's own session; empty where the agent does not say."""
    call_id: str
    tool: str
    arguments: Mapping[str, object]
    time: datetime

    def to_dict(self) -> dict[str, Any]:
        """As `tool.start`."""
        data = {"toolName": self.tool, "toolUseId": self.call_id, "toolInput": dict(self.arguments)}
        return _event("tool.start", self.session_id, self.time, data)


@dataclass(frozen=True, slots=True)
class ToolComplete:
    """It has ended, and nothing of it runs any more; also after an abort."""

    session_id: str
    call_id: str
    tool: str
    outcome: Outcome
    time: datetime

    @property
    def success(self) -> bool:
        return self.outcome.ok

    def to_dict(self) -> dict[str, Any]:
        """As `tool.complete`."""
        data: dict[str, Any] = {
            "toolName": self.tool,
            "toolUseId": self.call_id,
            "toolResult": self.outcome.text,
            "success": self.success,
        }
        if not self.success:
            data["error"] = self.outcome.message or self.outcome.kind.value
        return _event("tool.complete", self.session_id, self.time, data)


def _event(type_: str, session_id: str, time: datetime, data: dict[str, Any]) -> dict[str, Any]:
    timestamp = time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return {"type": type_, "sessionId": session_id, "timestamp": timestamp, "data": data}
