"""The API for adapter authors: `connect` opens a Session with the daemon, which runs Calls.

    async with connect(directory=".") as session:
        outcome = await session.call("words", {"path": "README.md"})

A call always ends with an Outcome, never with an exception, whatever fails: the tool, the daemon or the connection.
Cancelling a task that awaits a call aborts the call, and the cancellation is delivered when the tool has stopped.

It runs on asyncio, also in a notebook: `async with connect() as session:`. Where no event loop runs, or trio's, there is
`toolcell.client.blocking`.

Importing this package loads nothing; a name is loaded when it is first used. So a command that needs one of its modules does
not pay for all of them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .call import Call
    from .callbacks import Answer, Ask
    from .catalog import Catalog, Problem, ToolInfo
    from .errors import Refused, Unavailable
    from .events import Event, Gap, Log, Metadata, Progress, Started, Update
    from .forms import Question, question_service
    from .limits import Limits
    from .outcome import (
        Block,
        CallFailed,
        Facts,
        FileData,
        ImageData,
        Kind,
        Outcome,
        Output,
        ResourceLink,
        Text,
    )
    from .session import Session, connect
else:
    _MODULES = {
        "Answer": "callbacks",
        "Ask": "callbacks",
        "Block": "outcome",
        "Call": "call",
        "CallFailed": "outcome",
        "Catalog": "catalog",
        "Event": "events",
        "Facts": "outcome",
        "FileData": "outcome",
        "Gap": "events",
        "ImageData": "outcome",
        "Kind": "outcome",
        "Limits": "limits",
        "Log": "events",
        "Metadata": "events",
        "Outcome": "outcome",
        "Output": "outcome",
        "Problem": "catalog",
        "Progress": "events",
        "Question": "forms",
        "Refused": "errors",
        "ResourceLink": "outcome",
        "Session": "session",
        "Started": "events",
        "Text": "outcome",
        "ToolInfo": "catalog",
        "Unavailable": "errors",
        "Update": "events",
        "connect": "session",
        "question_service": "forms",
    }

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(__import__(f"{__name__}.{module}", fromlist=(name,)), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "Answer",
    "Ask",
    "Block",
    "Call",
    "CallFailed",
    "Catalog",
    "Event",
    "Facts",
    "FileData",
    "Gap",
    "ImageData",
    "Kind",
    "Limits",
    "Log",
    "Metadata",
    "Outcome",
    "Output",
    "Problem",
    "Progress",
    "Question",
    "Refused",
    "ResourceLink",
    "Session",
    "Started",
    "Text",
    "ToolInfo",
    "Unavailable",
    "Update",
    "connect",
    "question_service",
]
