"""The messages of a host: typed and bounded.

A message is one line, an object with a `type`. What it may have is stated by the fields of its class: the annotation of each
has a reader of `fields`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, cast, get_type_hints

from toolcell._session_reasons import REASONS, SessionReason
from toolcell.client import Limits

from .fields import (
    Reader,
    anything,
    flag,
    mapping,
    number,
    one_of,
    seconds,
    some_of,
    text,
    texts,
    trace,
)

ID_CHARACTERS_MAX: Final = 200
TEXT_CHARACTERS_MAX: Final = 1000
PATH_CHARACTERS_MAX: Final = 4096  # PATH_MAX of Linux
SECONDS_MAX: Final = 1e9
WAIT_SECONDS_MAX: Final = 60.0
"""For files that are still being loaded; one that hangs takes ten."""
SHOWN_CHARACTERS_MAX: Final = 60

EVENTS: Final = ("started", "update", "progress", "metadata", "log")


class RequestFault(Exception):
    """A message that is not carried out: a code for programs, what is wrong, what to do, and what it was about."""

    def __init__(
        self,
        code: str,
        message: str,
        remedy: str = "",
        *,
        to: str | None = None,
        session: str | None = None,
        id: str | None = None,  # noqa: A002  as the field is called
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.to = to
        self.session = session
        self.id = id


_ID: Final = text(ID_CHARACTERS_MAX, 1)
_NAME: Final = text(ID_CHARACTERS_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """A message of the host."""

    type: ClassVar[str]
    session: Annotated[str, _ID]
    """The host's own name of the session; free again when it is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(HostRequest):
    """Open a session; answered by `opened`, or by `error`, after which there is none."""

    type: ClassVar[str] = "open"
    agent: Annotated[str, text(64, 1)] = "bridge"
    """The name of the program, for `context.agent`."""
    agent_title: Annotated[str, text(64)] = ""
    """The same in a sentence for people; default: `agent`."""
    directory: Annotated[str, text(PATH_CHARACTERS_MAX, 1)] = "."
    """The project whose tools the session has; default: the one in which the bridge was started."""
    socket: Annotated[str | None, text(PATH_CHARACTERS_MAX, 1)] = None
    """The daemon's socket; default: that of the command line, else the user's."""
    daemon: Annotated[
        Literal["start", "running", "private"] | None, one_of("start", "running", "private")
    ] = None
    """Whether a daemon is started; default: "start", and "running" with `--socket`."""
    linger: Annotated[float, seconds(86400)] = 10.0
    """Seconds for which calls go on after the connection to the daemon is lost."""
    wait: Annotated[float, seconds(WAIT_SECONDS_MAX)] = 2.0
    """The longest wait, in seconds, for files that are still being loaded."""
    allow: Annotated[tuple[str, ...], texts(ID_CHARACTERS_MAX)] = ("*",)
    deny: Annotated[tuple[str, ...], texts(ID_CHARACTERS_MAX)] = ()
    """Patterns of names of tools: those that the session sees, and those that it does not."""
    limits: Annotated[Limits, mapping] = field(default_factory=Limits)
    """Limits of every call, which lower the configured ones."""
    answers: Annotated[bool, flag] = False
    """Whether the host answers questions; without it they are denied."""
    services: Annotated[tuple[str, ...], texts(ID_CHARACTERS_MAX)] = ()
    """What tools can ask for with `context.request`."""
    events: Annotated[tuple[str, ...], some_of(*EVENTS)] = EVENTS
    """Which events of calls are told."""
    own_tools: Annotated[tuple[str, ...], texts(ID_CHARACTERS_MAX)] = ()
    """Names of the agent's own tools, which ours do not take unless the user's configuration says so."""
    kept_tools: Annotated[tuple[str, ...], texts(ID_CHARACTERS_MAX)] = ()
    """Of these, names that ours never take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool(HostRequest):
    """Call a tool; ends with one `ended`."""

    type: ClassVar[str] = "call"
    id: Annotated[str, _ID]
    """The host's id of the call, and the tool's `context.call_id`."""
    tool: Annotated[str, _ID]
    """A name of `tools`."""
    arguments: Annotated[dict[str, Any], mapping] = field(default_factory=dict[str, Any])
    session_id: Annotated[str, _NAME] = ""
    message_id: Annotated[str, _NAME] = ""
    agent_name: Annotated[str, _NAME] = ""
    """Who calls, as the agent names it, for the tool's context."""
    parent: Annotated[str, _NAME] = ""
    """The running call that this one is made for."""
    timeout: Annotated[float | None, seconds(SECONDS_MAX)] = None
    """Seconds until the call is stopped, those in the queue included."""
    limits: Annotated[Limits, mapping] = field(default_factory=Limits)
    """Limits which lower those of the session."""
    traceparent: Annotated[str, trace] = ""
    """The trace that the call belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(HostRequest):
    """Answer an `ask`."""

    type: ClassVar[str] = "answer"
    id: Annotated[str, _ID]
    ask: Annotated[int, number]
    allowed: Annotated[bool, flag]
    always: Annotated[bool, flag] = False
    """Allow the patterns of `always` from now on."""
    reason: Annotated[str, text(TEXT_CHARACTERS_MAX)] = ""
    """Why not, for the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(HostRequest):
    """Answer a `request`, with a result or an error."""

    type: ClassVar[str] = "reply"
    id: Annotated[str, _ID]
    request: Annotated[int, number]
    result: Annotated[object, anything] = None
    error: Annotated[str | None, text(TEXT_CHARACTERS_MAX)] = None
    """What went wrong, for the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortCall(HostRequest):
    """Stop a call, which still ends with one `ended`."""

    type: ClassVar[str] = "abort"
    id: Annotated[str, _ID]
    reason: Annotated[str, text(TEXT_CHARACTERS_MAX)] = ""
    """The tool's `context.abort.reason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload(HostRequest):
    """Look at the directory again; answered by `tools`, or by `error`."""

    type: ClassVar[str] = "reload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell(HostRequest):
    """Tell the tools what has happened to the agent's session."""

    type: ClassVar[str] = "tell"
    reason: Annotated[SessionReason, one_of(*REASONS)]
    data: Annotated[dict[str, Any], mapping] = field(default_factory=dict[str, Any])
    session_id: Annotated[str, _NAME] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(HostRequest):
    """Abort what runs, and end the session; answered by `closed`, after the `ended` of each call."""

    type: ClassVar[str] = "close"


REQUESTS: Final[Mapping[str, type[HostRequest]]] = {
    kind.type: kind for kind in (Open, CallTool, Answer, Reply, AbortCall, Reload, Tell, Close)
}


def read(line: bytes) -> HostRequest:
    """Read a line. Raises RequestFault."""
    try:
        value: object = json.loads(line.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise RequestFault("not_json", "The line is not UTF-8.") from None
    except RecursionError:
        raise RequestFault("not_json", "The line is nested too deeply.") from None
    except ValueError as error:
        raise RequestFault("not_json", f"The line is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestFault("invalid_message", "A message is an object with a `type`.")
    said = cast("dict[str, object]", value)
    kind, session, call = (said.pop("type", None), *(_named(said.get(name)) for name in ("session", "id")))
    if not isinstance(kind, str) or kind not in REQUESTS:
        known = ", ".join(REQUESTS)
        wrong = f"There is no message of the type {_shown(kind)}; there are {known}."
        raise RequestFault("invalid_message", wrong, session=session, id=call)
    try:
        return _read_as(REQUESTS[kind], said)
    except ValueError as error:
        raise RequestFault(
            "invalid_message", f"{kind}: {error}.", to=kind, session=session, id=call
        ) from None


def _read_as(kind: type[HostRequest], said: dict[str, object]) -> HostRequest:
    known = _fields(kind.type)
    if unknown := [name for name in said if name not in known]:
        raise ValueError(f"it has no {_shown(unknown[0])}; it has {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, (reader, needed) in known.items():
        value = said.get(name)
        if value is None:
            if needed:
                raise ValueError(f"{name} is missing")
            continue
        try:
            values[name] = reader(value)
        except ValueError as error:
            raise ValueError(f"{name} {error}, got {_shown(value)}") from None
    return kind(**values)


@cache
def _fields(name: str) -> Mapping[str, tuple[Reader, bool]]:
    """The fields of a type: how each is read, and whether it must be there; null is as if it were not."""
    kind = REQUESTS[name]
    hints = get_type_hints(kind, include_extras=True)
    return {
        item.name: (
            hints[item.name].__metadata__[0],
            item.default is MISSING and item.default_factory is MISSING,
        )
        for item in fields(kind)
    }


def _named(value: object) -> str | None:
    try:
        _ID(value)
    except ValueError:
        return None
    return cast("str", value)


def _shown(value: object) -> str:
    """A value of a host in a message, in a few characters."""
    shown = repr(value) if not isinstance(value, list | dict) else type(cast("object", value)).__name__
    return shown if len(shown) <= SHOWN_CHARACTERS_MAX else f"{shown[:SHOWN_CHARACTERS_MAX]}…"


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")
