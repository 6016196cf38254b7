"""The Outcome of a call and its parts: immutable values.

An Outcome has a kind for programs, facts for policy and a message for the user.
It is never an exception, because an agent passes the failure of a tool to the model as an ordinary result; `check`
raises an exception instead.

The attributes are the keys of `--json`, which is a stable format: names are added, never changed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

REPR_CHARACTERS_MAX = 200
"""Of a long text in a repr; of any other value four times as much."""

Stopped: TypeAlias = Literal["settled", "killed", "best_effort", "unconfirmed"]


class Kind(StrEnum):
    """How a call ended; REFUSED means that the daemon did not accept it. Each is its name in lower case, as a text too."""

    OK = "ok"
    TOOL_ERROR = "tool_error"
    INVALID_ARGUMENTS = "invalid_arguments"
    DENIED = "denied"
    ABORTED = "aborted"
    TIMED_OUT = "timed_out"
    LIMIT_EXCEEDED = "limit_exceeded"
    CRASHED = "crashed"
    REFUSED = "refused"
    INTERNAL = "internal"
    # The same members by the names that they have in JSON.
    ok = OK
    tool_error = TOOL_ERROR
    invalid_arguments = INVALID_ARGUMENTS
    denied = DENIED
    aborted = ABORTED
    timed_out = TIMED_OUT
    limit_exceeded = LIMIT_EXCEEDED
    crashed = CRASHED
    refused = REFUSED
    internal = INTERNAL

    def __repr__(self) -> str:
        return f"Kind.{self.name}"


# The texts of failures are built by `ending_of` and `failure_text` for every reader.

CUT_SHORT = frozenset({Kind.aborted, Kind.timed_out, Kind.limit_exceeded, Kind.crashed, Kind.internal})
"""Kinds whose message says how the call ended and not what kind of ending it was: "2.0 s; it stopped by itself"."""
UNSAID_CAUSES = frozenset({"client", "operator"})
"""Causes that the message says better: "by you"."""
NOT_UNDONE = "What it had done until then is not undone."
"""Last line of the message of a call that may have run and whose ending is not known."""


@dataclass(frozen=True, slots=True)
class Text:
    """A block of text."""

    text: str

    def __repr__(self) -> str:
        return f"Text({_short(self.text)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the block as JSON."""
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True)
class ImageData:
    """A picture: its bytes and its media type, such as "image/png"."""

    data: bytes
    mime_type: str

    def __repr__(self) -> str:
        return f"ImageData(<{len(self.data)} bytes>, {_short(self.mime_type)})"

    def __str__(self) -> str:
        return f"[image: {self.mime_type}, {len(self.data)} bytes]"

    def to_dict(self) -> dict[str, Any]:
        """Return the block as JSON, with the bytes in base64."""
        return {"type": "image", "data": base64.b64encode(self.data).decode(), "mime_type": self.mime_type}


@dataclass(frozen=True, slots=True)
class FileData:
    """A file: its bytes, its media type, such as "application/pdf", and its name."""

    data: bytes
    mime_type: str
    name: str

    def __repr__(self) -> str:
        return f"FileData(<{len(self.data)} bytes>, {_short(self.mime_type)}, {_short(self.name)})"

    def __str__(self) -> str:
        return f"[file: {self.name}, {self.mime_type}, {len(self.data)} bytes]"

    def to_dict(self) -> dict[str, Any]:
        """Return the block as JSON, with the bytes in base64."""
        encoded = base64.b64encode(self.data).decode()
        return {"type": "file", "data": encoded, "mime_type": self.mime_type, "name": self.name}


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """A link to a resource that the agent may open; `name` and `mime_type` are None if unknown."""

    uri: str
    name: str | None = None
    mime_type: str | None = None

    def __str__(self) -> str:
        return f"[{self.name}: {self.uri}]" if self.name else f"[{self.uri}]"

    def to_dict(self) -> dict[str, Any]:
        """Return the block as JSON."""
        return {"type": "resource_link", "uri": self.uri, "name": self.name, "mime_type": self.mime_type}


Block: TypeAlias = Text | ImageData | FileData | ResourceLink


@dataclass(frozen=True, slots=True)
class Output:
    """A truncated output, whose full text is stored up to the quota."""

    id: str
    """The handle for `Session.read_output`; "" if nothing was stored."""
    bytes: int
    """The size of the full output."""
    lines: int
    """The lines of the full output."""
    kept_bytes: int
    """The bytes that are stored."""
    complete: bool
    """Whether all of it is stored."""
    expires_at: datetime | None
    """When it is deleted; None if unknown."""
    source: str
    """Where it comes from: "result", "stdout" or "stderr"."""
    reason: str = ""
    """Why not all of it is stored; "" if all of it is."""

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes, with the time as RFC 3339."""
        return _shallow(self) | {"expires_at": _rfc3339(self.expires_at)}


@dataclass(frozen=True, slots=True)
class Facts:
    """The measurements of a call; all zero for one that never reached a worker."""

    queue_seconds: float = 0.0
    """Seconds of waiting for a worker."""
    run_seconds: float = 0.0
    """Seconds of running."""
    cpu_seconds: float = 0.0
    """Seconds of processor time of all its processes."""
    memory_peak_bytes: int = 0
    """The largest memory use of all its processes."""
    output_bytes: int = 0
    """The size of the full result."""
    spilled_bytes: int = 0
    """The bytes of output that were stored because they were truncated."""
    worker_id: str = ""
    """The worker that ran it."""
    generation: int = 0
    """The catalog generation that the call was started from."""
    leftover_processes: int = 0
    """Processes that the tool had left running, which were killed."""
    leftover_threads: int = 0
    """Threads that the tool had left running."""
    state_lost: bool = False
    """Whether the state of earlier calls was lost because the worker was replaced."""
    stop_seconds: float = 0.0
    """Seconds from the stop request to the end of the last process."""
    killed_processes: int = 0
    """Processes that were killed to stop the call."""
    logs: tuple[Output, ...] = ()
    """Printed output that was truncated."""
    refused_hosts: tuple[str, ...] = ()
    """Hosts that the tool asked for and may not reach, as the entries of `network` that would grant them."""
    moved_aside: tuple[str, ...] = ()
    """Protected places, such as `.git` or `.envrc`, that appeared in the project during the call and were renamed."""
    node: str = ""
    """The machine of a cluster that ran it; empty elsewhere."""
    fence: int = 0
    """The fence of the session's lease on that machine; 0 elsewhere. A session that moves has a greater one."""

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes."""
        return _shallow(self) | {
            "logs": [log.to_dict() for log in self.logs],
            "refused_hosts": list(self.refused_hosts),
            "moved_aside": list(self.moved_aside),
        }


@dataclass(frozen=True)
class Outcome:
    """How a call ended."""

    kind: Kind
    """The kind of ending."""
    cause: str | None = None
    """The limit or the reason: "idle", "memory", "SIGSEGV", "exit 3", "unknown_tool", …; None if there is none."""
    message: str = ""
    """What happened, with figures, and what to do about it; "" for `ok`."""
    content: tuple[Block, ...] = ()
    """The result; partial for a call that was stopped."""
    details: Any = None
    """Data for programs, as read from JSON; None if there is none."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The merged values of the tool's metadata."""
    output: Output | None = None
    """The stored output; None if nothing was truncated."""
    ran: bool = False
    """Whether the tool began to run; False means that nothing happened."""
    stopped: Stopped | None = None
    """How a stopped call ended: "settled" by itself, or "killed"; "best_effort" if it is not proven that all processes ended,
    "unconfirmed" if an MCP server was told to cancel it, and runs."""
    facts: Facts = field(default_factory=Facts)
    """The measurements."""
    side_effects_possible: bool = False
    """Whether a call that did not end well may have had effects."""
    structured: bool = False
    """Whether `details` fit the tool's output schema, and they and the text the limits of its output."""
    notes: tuple[str, ...] = ()
    """Sentences for the model beside the result, such as that an older version of the tool was run, and why."""

    @classmethod
    def decoded(cls, values: dict[str, Any], facts: Callable[[], Facts]) -> Self:
        """Make one of its attributes but for the facts, in one step: a frozen value is otherwise made in one for each.

        Args:
            values: The value of each attribute.
            facts: Decodes the facts, when they are first read: few callers look at them, and they have eighteen fields.
        """
        outcome = object.__new__(cls)
        values["_decode_facts"] = facts
        object.__setattr__(outcome, "__dict__", values)
        return outcome

    if not TYPE_CHECKING:  # for a type checker a misspelt attribute stays one

        def __getattr__(self, name):  # only called for an attribute without a value
            if name != "facts":
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                )
            facts = self._decode_facts()
            object.__setattr__(self, "facts", facts)
            return facts

    def __getstate__(self) -> dict[str, Any]:
        return _shallow(self)  # with the facts themselves

    def __repr__(self) -> str:
        """Return what there is to say of it in some lines at most: what is as usual is left out, what is long is cut."""
        shown: list[str] = []
        for item in fields(self):
            value = getattr(self, item.name)
            usual = item.default if item.default_factory is MISSING else item.default_factory()
            if value != usual:
                shown.append(f"{item.name}={_short(value)}")
        return f"Outcome({', '.join(shown)})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook shows: the text and the pictures, or, without pictures, the repr alone."""
        from .notebook import shown

        page = shown(self)
        return {"text/plain": repr(self)} | ({"text/html": page} if page else {})

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.kind is Kind.ok

    @property
    def text(self) -> str:
        """The text for the model, for success and failure."""
        return "\n\n".join(filter(None, (failure_text(self), _said(self), notes_text(self))))

    def check(self) -> Outcome:
        """Return this outcome if it is ok, else raise CallFailed."""
        if self.ok:
            return self
        raise CallFailed(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return _shallow(self) | {
            "kind": self.kind.value,
            "content": [block.to_dict() for block in self.content],
            "metadata": dict(self.metadata),
            "notes": list(self.notes),
            "output": self.output.to_dict() if self.output else None,
            "facts": self.facts.to_dict(),
        }


class CallFailed(Exception):
    """Raised by `Outcome.check` for a call that failed; `outcome` is its Outcome, and `code` its kind: "tool_error"."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.code = outcome.kind.value

    def __str__(self) -> str:
        text, ending = self.outcome.text, ending_of(self.outcome)
        return text if text.startswith(ending) else f"{ending}: {text}"


def ending_of(outcome: Outcome) -> str:
    """Return the kind, with the cause where the message does not say it: `timed_out (timeout)`, `aborted`."""
    cause = outcome.cause if outcome.cause not in UNSAID_CAUSES else None
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
    said = _said(outcome)
    if said and outcome.message.startswith(said):
        return outcome.message[len(said) :].lstrip("\n")  # what was added to the tool's own words
    if said and outcome.message.endswith(said):
        return outcome.message[: -len(said)].rstrip("\n")
    return "" if outcome.message in said else outcome.message


def notes_text(outcome: Outcome) -> str:
    """Return what the model reads below the content: a line for each note."""
    return "\n".join(f"[{note}]" for note in outcome.notes)


def _said(outcome: Outcome) -> str:
    """Return the content as text."""
    return "\n".join(block.text if isinstance(block, Text) else str(block) for block in outcome.content)


def _short(value: object) -> str:
    """Return the repr of a value, with its middle cut out where it is long."""
    if isinstance(value, str | bytes) and len(value) > 2 * REPR_CHARACTERS_MAX:
        size = len(value)
        value, rest = value[:REPR_CHARACTERS_MAX], f" and {size - REPR_CHARACTERS_MAX} more"
        return f"{value!r}{rest}"
    text = repr(value)
    if len(text) <= 4 * REPR_CHARACTERS_MAX:
        return text
    return f"{text[: 3 * REPR_CHARACTERS_MAX]}…{text[-REPR_CHARACTERS_MAX:]}"


def _shallow(value: Output | Facts | Outcome) -> dict[str, Any]:
    """The attributes of a value in their order; `dataclasses.asdict` would copy `details` to its depths."""
    return {attribute.name: getattr(value, attribute.name) for attribute in fields(value)}


def _rfc3339(time: datetime | None) -> str | None:
    return time.isoformat().replace("+00:00", "Z") if time else None
