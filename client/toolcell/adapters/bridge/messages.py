"""The messages of the bridge: those of the host, read and bounded, and ours, as JSON.

A message is one line, an object with a `type`. What a host's message may have is stated by the fields of its class: the
annotation of each has a reader, which returns the value or raises ValueError with what it should be.
Ours are ASCII: some languages take U+2028 within a text for the end of a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, cast, get_type_hints

from toolcell._session_reasons import REASONS, SessionReason
from toolcell._version import VERSION
from toolcell.adapters.pipes import LINE_BYTES_MAX
from toolcell.client import Event, Limits, Outcome, Problem, ToolInfo, Update

__all__ = [
    "EVENTS",
    "PROTOCOL",
    "REQUESTS",
    "Abort",
    "Answer",
    "Call",
    "Close",
    "Fault",
    "Open",
    "Reload",
    "Reply",
    "Request",
    "Tell",
    "asked",
    "closed",
    "encode",
    "ended",
    "failed",
    "happened",
    "hello",
    "opened",
    "read",
    "requested",
    "tools",
]

PROTOCOL: Final = 1
"""The version; fields and types are added without another one, so a host ignores what it does not know."""

ID_CHARACTERS_MAX: Final = 200
TEXT_CHARACTERS_MAX: Final = 1000
PATH_CHARACTERS_MAX: Final = 4096  # PATH_MAX of Linux
NAMES_MAX: Final = 256
SECONDS_MAX: Final = 1e9
WAIT_SECONDS_MAX: Final = 60.0
"""For files that are still being loaded; one that hangs takes ten."""
NUMBER_MAX: Final = 2**53 - 1
SHOWN_CHARACTERS_MAX: Final = 60

EVENTS: Final = ("started", "update", "progress", "metadata", "log")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")

Reader: TypeAlias = Callable[[object], Any]


class Fault(Exception):
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


# What a field may be


def _text(most: int, least: int = 0) -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise ValueError(f"should be a text of {least} to {most} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("holds half a surrogate pair, which is no text") from None
        return value

    return read


def _texts(most: int) -> Reader:
    one = _text(most)

    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or len(cast("list[object]", value)) > NAMES_MAX:
            raise ValueError(f"should be a list of at most {NAMES_MAX} texts")
        return tuple(one(each) for each in cast("list[object]", value))

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("should be true or false")  # noqa: TRY004  as the others
    return value


def _seconds(most: float) -> Reader:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ValueError(f"should be a number of seconds from 0 to {most:g}")
        return float(value)

    return read


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBER_MAX:
        raise ValueError("should be a whole number")
    return value


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("should be an object")  # noqa: TRY004  as the others
    return cast("dict[str, Any]", value)


def _one_of(*words: str) -> Reader:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"should be one of {', '.join(words)}")
        return value

    return read


def _some_of(*words: str) -> Reader:
    one = _one_of(*words)
    texts = _texts(ID_CHARACTERS_MAX)
    return lambda value: tuple(one(each) for each in texts(value))


def _trace(value: object) -> str:
    if not isinstance(value, str) or (value and _TRACEPARENT.fullmatch(value) is None):
        raise ValueError("should be a W3C trace context, 00-…-…-01")
    return value


def _anything(value: object) -> object:
    return value


_ID: Final = _text(ID_CHARACTERS_MAX, 1)
_NAME: Final = _text(ID_CHARACTERS_MAX)


# What a host says


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A message of the host."""

    type: ClassVar[str]
    session: Annotated[str, _ID]
    """The host's own name of the session; free again when it is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(Request):
    """Open a session; answered by `opened`, or by `error`, after which there is none."""

    type: ClassVar[str] = "open"
    agent: Annotated[str, _text(64, 1)] = "bridge"
    """The name of the program, for `context.agent`."""
    agent_title: Annotated[str, _text(64)] = ""
    """The same in a sentence for people; default: `agent`."""
    directory: Annotated[str, _text(PATH_CHARACTERS_MAX, 1)] = "."
    """The project whose tools the session has; default: the one in which the bridge was started."""
    socket: Annotated[str | None, _text(PATH_CHARACTERS_MAX, 1)] = None
    """The daemon's socket; default: that of the command line, else the user's."""
    daemon: Annotated[
        Literal["start", "running", "private"] | None, _one_of("start", "running", "private")
    ] = None
    """Whether a daemon is started; default: "start", and "running" with `--socket`."""
    linger: Annotated[float, _seconds(86400)] = 10.0
    """Seconds for which calls go on after the connection to the daemon is lost."""
    wait: Annotated[float, _seconds(WAIT_SECONDS_MAX)] = 2.0
    """The longest wait, in seconds, for files that are still being loaded."""
    allow: Annotated[tuple[str, ...], _texts(ID_CHARACTERS_MAX)] = ("*",)
    deny: Annotated[tuple[str, ...], _texts(ID_CHARACTERS_MAX)] = ()
    """Patterns of names of tools: those that the session sees, and those that it does not."""
    limits: Annotated[Limits, _object] = field(default_factory=Limits)
    """Limits of every call, which lower the configured ones."""
    answers: Annotated[bool, _flag] = False
    """Whether the host answers questions; without it they are denied."""
    services: Annotated[tuple[str, ...], _texts(ID_CHARACTERS_MAX)] = ()
    """What tools can ask for with `context.request`."""
    events: Annotated[tuple[str, ...], _some_of(*EVENTS)] = EVENTS
    """Which events of calls are told."""
    own_tools: Annotated[tuple[str, ...], _texts(ID_CHARACTERS_MAX)] = ()
    """Names of the agent's own tools, which ours do not take unless the user's configuration says so."""
    kept_tools: Annotated[tuple[str, ...], _texts(ID_CHARACTERS_MAX)] = ()
    """Of these, names that ours never take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Request):
    """Call a tool; ends with one `ended`."""

    type: ClassVar[str] = "call"
    id: Annotated[str, _ID]
    """The host's id of the call, and the tool's `context.call_id`."""
    tool: Annotated[str, _ID]
    """A name of `tools`."""
    arguments: Annotated[dict[str, Any], _object] = field(default_factory=dict[str, Any])
    session_id: Annotated[str, _NAME] = ""
    message_id: Annotated[str, _NAME] = ""
    agent_name: Annotated[str, _NAME] = ""
    """Who calls, as the agent names it, for the tool's context."""
    parent: Annotated[str, _NAME] = ""
    """The running call that this one is made for."""
    timeout: Annotated[float | None, _seconds(SECONDS_MAX)] = None
    """Seconds until the call is stopped, those in the queue included."""
    limits: Annotated[Limits, _object] = field(default_factory=Limits)
    """Limits which lower those of the session."""
    traceparent: Annotated[str, _trace] = ""
    """The trace that the call belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Request):
    """Answer an `ask`."""

    type: ClassVar[str] = "answer"
    id: Annotated[str, _ID]
    ask: Annotated[int, _number]
    allowed: Annotated[bool, _flag]
    always: Annotated[bool, _flag] = False
    """Allow the patterns of `always` from now on."""
    reason: Annotated[str, _text(TEXT_CHARACTERS_MAX)] = ""
    """Why not, for the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Request):
    """Answer a `request`, with a result or an error."""

    type: ClassVar[str] = "reply"
    id: Annotated[str, _ID]
    request: Annotated[int, _number]
    result: Annotated[object, _anything] = None
    error: Annotated[str | None, _text(TEXT_CHARACTERS_MAX)] = None
    """What went wrong, for the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort(Request):
    """Stop a call, which still ends with one `ended`."""

    type: ClassVar[str] = "abort"
    id: Annotated[str, _ID]
    reason: Annotated[str, _text(TEXT_CHARACTERS_MAX)] = ""
    """The tool's `context.abort.reason`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload(Request):
    """Look at the directory again; answered by `tools`, or by `error`."""

    type: ClassVar[str] = "reload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell(Request):
    """Tell the tools what has happened to the agent's session."""

    type: ClassVar[str] = "tell"
    reason: Annotated[SessionReason, _one_of(*REASONS)]
    data: Annotated[dict[str, Any], _object] = field(default_factory=dict[str, Any])
    session_id: Annotated[str, _NAME] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Request):
    """Abort what runs, and end the session; answered by `closed`, after the `ended` of each call."""

    type: ClassVar[str] = "close"


REQUESTS: Final[Mapping[str, type[Request]]] = {
    kind.type: kind for kind in (Open, Call, Answer, Reply, Abort, Reload, Tell, Close)
}


def read(line: bytes) -> Request:
    """Read a line. Raises Fault."""
    try:
        value: object = json.loads(line.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Fault("not_json", "The line is not UTF-8.") from None
    except RecursionError:
        raise Fault("not_json", "The line is nested too deeply.") from None
    except ValueError as error:
        raise Fault("not_json", f"The line is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Fault("invalid_message", "A message is an object with a `type`.")
    said = cast("dict[str, object]", value)
    kind, session, call = (said.pop("type", None), *(_named(said.get(name)) for name in ("session", "id")))
    if not isinstance(kind, str) or kind not in REQUESTS:
        known = ", ".join(REQUESTS)
        text = f"There is no message of the type {_shown(kind)}; there are {known}."
        raise Fault("invalid_message", text, session=session, id=call)
    try:
        return _read_as(REQUESTS[kind], said)
    except ValueError as error:
        raise Fault("invalid_message", f"{kind}: {error}.", to=kind, session=session, id=call) from None


def _read_as(kind: type[Request], said: dict[str, object]) -> Request:
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
    text = repr(value) if not isinstance(value, list | dict) else type(cast("object", value)).__name__
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


# What we say


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as a line. Raises ValueError if it holds what is no JSON, such as NaN."""
    try:
        return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def hello(sessions_max: int, calls_max: int) -> dict[str, Any]:
    """The first message."""
    return {
        "type": "hello",
        "protocol": PROTOCOL,
        "version": VERSION,
        "line_bytes_max": LINE_BYTES_MAX,
        "sessions_max": sessions_max,
        "calls_max": calls_max,
    }


def opened(
    session: str, daemon_session: str, offered: Mapping[str, ToolInfo], problems: tuple[Problem, ...]
) -> dict[str, Any]:
    """A session is open."""
    about = _catalog(offered, problems)
    return {"type": "opened", "session": session, "daemon_session": daemon_session, **about}


def tools(
    session: str, offered: Mapping[str, ToolInfo], problems: tuple[Problem, ...], *, reloaded: bool
) -> dict[str, Any]:
    """The tools have changed, or a `reload` was done."""
    return {"type": "tools", "session": session, "reloaded": reloaded, **_catalog(offered, problems)}


def _catalog(offered: Mapping[str, ToolInfo], problems: tuple[Problem, ...]) -> dict[str, Any]:
    return {
        "tools": [asdict(info) | {"name": name, "source": info.source} for name, info in offered.items()],
        "problems": [asdict(problem) | {"tool": problem.tool or None} for problem in problems],
    }


def happened(session: str, call: str, event: Event) -> dict[str, Any]:
    """An event of a call, with the fields of `toolcell call --events`."""
    values = {item.name: getattr(event, item.name) for item in fields(event)}
    if isinstance(event, Update):
        values["content"] = [block.to_dict() for block in event.content]
    return {"type": "event", "session": session, "id": call, "event": type(event).__name__.lower(), **values}


def asked(session: str, call: str, number: int, question: Mapping[str, Any]) -> dict[str, Any]:
    """A tool asks the user."""
    return {"type": "ask", "session": session, "id": call, "ask": number, **question}


def requested(
    session: str, call: str, number: int, service: str, arguments: Mapping[str, object]
) -> dict[str, Any]:
    """A tool asks its agent."""
    about = {"request": number, "service": service, "arguments": dict(arguments)}
    return {"type": "request", "session": session, "id": call, **about}


def ended(session: str, call: str, outcome: Outcome) -> dict[str, Any]:
    """A call has ended; `text` is what the model reads."""
    about = {"ok": outcome.ok, "text": outcome.text, "outcome": outcome.to_dict()}
    return {"type": "ended", "session": session, "id": call, **about}


def closed(session: str) -> dict[str, Any]:
    """A session has ended."""
    return {"type": "closed", "session": session}


def failed(fault: Fault) -> dict[str, Any]:
    """A message was not carried out."""
    return {
        "type": "error",
        "to": fault.to,
        "session": fault.session,
        "id": fault.id,
        "code": fault.code,
        "message": fault.message,
        "remedy": fault.remedy or None,
    }
