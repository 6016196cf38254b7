"""What a model of the tests says: turns that are prepared, whatever the agent asks.

The servers that speak an agent's wire (`anthropic.py`, `openai.py`) take the next turn for each request that offers
tools, and answer requests without tools (titles, summaries) with a word.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Script", "Turn", "Use"]

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Use:
    """The model wants a tool called, by the name that the agent offers it under."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str = field(default_factory=lambda: f"use_{next(_numbers):06}")


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model."""

    text: str = ""
    uses: tuple[Use, ...] = ()
    to: str = ""
    """Only for a session whose user said this, where several are at work; empty: for whichever comes first."""


@dataclass
class Script:
    """The turns to come, and what the agent sent."""

    turns: list[Turn] = field(default_factory=list[Turn])
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Every request with tools, as the wire had it, the oldest first."""

    def uses(self, *uses: Use, then: str = "done") -> None:
        """The model uses tools, all in one message, and says a word when it has their results."""
        self.turns += [Turn(uses=uses), Turn(text=then)]

    def next(self, request: dict[str, Any]) -> Turn:
        """The turn for a request with tools."""
        self.requests.append(request)
        said = json.dumps([message for message in request.get("messages", ()) if message["role"] == "user"])
        for place, turn in enumerate(self.turns):
            if turn.to in said:
                return self.turns.pop(place)
        return Turn(text="nothing more")
