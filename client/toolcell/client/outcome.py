"""What a call ended with: values without behaviour, the same for every way to end.

An Outcome has a kind for programs, facts for policy and a message for people.
It is never an exception: a tool that failed is an ordinary result for an agent, who hands it to the model.
Who does want an exception calls `check`.

The attributes here are the keys of `--json`, so a name in this module is a promise: names are added, never changed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

__all__ = [
    "CUT_SHORT",
    "NOT_UNDONE",
    "UNSAID_CAUSE",
    "Block",
    "CallFailed",
    "Facts",
    "ImageData",
    "Kind",
    "Outcome",
    "Output",
    "ResourceLink",
    "Stopped",
    "Text",
    "ending_of",
    "failure_text",
]

Stopped: TypeAlias = Literal["settled", "killed", "best_effort"]


class Kind(StrEnum):
    """The ways to end; all but `refused` are the daemon's words."""

    ok = "ok"
    tool_error = "tool_error"
    invalid_arguments = "invalid_arguments"
    denied = "denied"
    aborted = "aborted"
    timed_out = "timed_out"
    limit_exceeded = "limit_exceeded"
    crashed = "crashed"
    refused = "refused"
    internal = "internal"


# The texts of failures are made by `ending_of` and `failure_text` for every reader. The plugin of OpenCode, which is
# JavaScript, has the same two functions in `outcome.js`; its build takes the next three constants from here.

CUT_SHORT = frozenset({Kind.aborted, Kind.timed_out, Kind.limit_exceeded, Kind.crashed, Kind.internal})
"""Kinds whose message says how the call ended and not what kind of ending it was: "2.0 s; it stopped by itself"."""
UNSAID_CAUSE = "client"
"""A cause that the message says better: "by you"."""
NOT_UNDONE = "What it had done until then is not undone."
"""Last line of the message of a call that may have run and whose ending is not known."""


@dataclass(frozen=True, slots=True)
class Text:
    """A block of text."""

    text: str

    def to_dict(self) -> dict[str, Any]:
        """The block as JSON has it."""
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True)
class ImageData:
    """A picture, as its bytes."""

    data: bytes
    mime_type: str

    def __str__(self) -> str:
        return f"[image: {self.mime_type}, {len(self.data)} bytes]"

    def to_dict(self) -> dict[str, Any]:
        """The block as JSON has it: the bytes are base64."""
        return {"type": "image", "data": base64.b64encode(self.data).decode(), "mime_type": self.mime_type}


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """A pointer to something that the agent may open."""

    uri: str
    name: str | None = None
    mime_type: str | None = None

    def __str__(self) -> str:
        return f"[{self.name}: {self.uri}]" if self.name else f"[{self.uri}]"

    def to_dict(self) -> dict[str, Any]:
        """The block as JSON has it."""
        return {"type": "resource_link", "uri": self.uri, "name": self.name, "mime_type": self.mime_type}


Block: TypeAlias = Text | ImageData | ResourceLink


@dataclass(frozen=True, slots=True)
class Output:
    """An output that was cut; the whole of it, up to the quota, waits under `id`."""

    id: str
    bytes: int
    lines: int
    kept_bytes: int
    complete: bool
    expires_at: datetime | None
    source: str  # "result", "stdout" or "stderr"

    def to_dict(self) -> dict[str, Any]:
        """The attributes, with the time as RFC 3339."""
        return _shallow(self) | {"expires_at": _rfc3339(self.expires_at)}


@dataclass(frozen=True, slots=True)
class Facts:
    """The figures of a call; all zero for one that never reached a worker."""

    queue_seconds: float = 0.0
    run_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    output_bytes: int = 0
    spilled_bytes: int = 0
    worker_id: str = ""
    generation: int = 0
    leftover_processes: int = 0
    leftover_threads: int = 0
    state_lost: bool = False
    stop_seconds: float = 0.0
    killed_processes: int = 0
    logs: tuple[Output, ...] = ()  # what it printed, where that was cut

    def to_dict(self) -> dict[str, Any]:
        """The attributes."""
        return _shallow(self) | {"logs": [log.to_dict() for log in self.logs]}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended."""

    kind: Kind
    cause: str | None = None
    message: str = ""
    content: tuple[Block, ...] = ()
    details: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: Output | None = None
    ran: bool = False
    stopped: Stopped | None = None
    facts: Facts = Facts()
    side_effects_possible: bool = False

    @property
    def ok(self) -> bool:
        """Whether the tool returned."""
        return self.kind is Kind.ok

    @property
    def text(self) -> str:
        """What to give the model, whether it went well or not."""
        return "\n\n".join(filter(None, (failure_text(self), _said(self))))

    def check(self) -> Outcome:
        """This outcome if it is ok, else CallFailed."""
        if self.ok:
            return self
        raise CallFailed(self)

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return _shallow(self) | {
            "kind": self.kind.value,
            "content": [block.to_dict() for block in self.content],
            "metadata": dict(self.metadata),
            "output": self.output.to_dict() if self.output else None,
            "facts": self.facts.to_dict(),
        }


class CallFailed(Exception):
    """A call did not end ok; the whole story is in `outcome`."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome

    def __str__(self) -> str:
        told, ending = self.outcome.text, ending_of(self.outcome)
        return told if told.startswith(ending) else f"{ending}: {told}"


def ending_of(outcome: Outcome) -> str:
    """Return the kind, with the cause where the message does not say it: `timed_out (timeout)`, `aborted`."""
    cause = outcome.cause if outcome.cause != UNSAID_CAUSE else None
    return f"{outcome.kind.value} ({cause})" if cause else outcome.kind.value


def failure_text(outcome: Outcome) -> str:
    """Return what the model reads ahead of the content of a call that failed.

    Empty for a call that is ok, and for one whose content already says it.
    """
    if outcome.ok:
        return ""
    if not outcome.message:
        return "" if outcome.content and outcome.kind not in CUT_SHORT else ending_of(outcome)
    if outcome.kind in CUT_SHORT:
        return f"{ending_of(outcome)}: {outcome.message}"
    return "" if outcome.message in _said(outcome) else outcome.message


def _said(outcome: Outcome) -> str:
    """Return the content as text."""
    return "\n".join(block.text if isinstance(block, Text) else str(block) for block in outcome.content)


def _shallow(value: Output | Facts | Outcome) -> dict[str, Any]:
    """The attributes of a value in their order; `dataclasses.asdict` would copy `details` to its depths."""
    return {attribute.name: getattr(value, attribute.name) for attribute in fields(value)}


def _rfc3339(time: datetime | None) -> str | None:
    return time.isoformat().replace("+00:00", "Z") if time else None
