"""Our messages to a host, as JSON. They are ASCII: some languages take U+2028 within a text for the end of a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from toolcell._version import VERSION
from toolcell.adapters.pipes import LINE_BYTES_MAX
from toolcell.client import Event, Outcome, Problem, ToolInfo
from toolcell.client.events import to_dict

from .requests import RequestFault

PROTOCOL: Final = 1
"""The version; fields and types are added without another one, so a host ignores what it does not know."""


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
    return {"type": "event", "session": session, "id": call, **to_dict(event)}


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


def failed(fault: RequestFault) -> dict[str, Any]:
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
