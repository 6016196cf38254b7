"""Definitions of tools that an agent keeps for a conversation, and how its model learns of a newer one.

Claude Code gives its model the description and the schema of a tool as they were at the first request of a
conversation, whatever it has listed since: they are part of what it caches. A call runs the new code all the same.
So the result of the first call after a change has a note with the definition as it is now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from toolcell.client import ToolInfo

NOTE_CHARACTERS_MAX = 8000
"""Of a definition in a note: a description has 2 KB where an agent shows it whole, and most schemas have less."""

_Definition: TypeAlias = "tuple[str, Mapping[str, Any]]"


class PinnedDefinitions:
    """What one conversation was given of each tool, and was told since. All of its state is here."""

    def __init__(self) -> None:
        self._known: dict[str, _Definition] = {}

    def listed(self, tools: Mapping[str, ToolInfo]) -> None:
        """Take note of a list; of a tool that was listed before, the first definition counts."""
        for name, info in tools.items():
            self._known.setdefault(name, _definition(info))

    def note(self, info: ToolInfo | None) -> str:
        """Return what to add to the result of a call, once for each change; empty if nothing has changed."""
        if info is None or info.name not in self._known:
            return ""
        now = _definition(info)
        if self._known[info.name] == now:
            return ""
        self._known[info.name] = now
        text = f"{info.description}\nArguments: {json.dumps(info.input_schema, ensure_ascii=False)}"
        if len(text) > NOTE_CHARACTERS_MAX:
            text = "Its new definition is too long for this note; a new conversation shows it."
        return (
            f"[{info.name} was changed after this conversation began, and this result is of the new version."
            f" Its definition is now:\n{text}]"
        )


def _definition(info: ToolInfo) -> _Definition:
    return info.description, info.input_schema
