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
    from toolcell._authoring.tool import Limits

    from .call import Call
    from .callbacks import Answer, Ask
    from .catalog import Catalog, Problem, ToolInfo
    from .errors import Refused, Unavailable
    from .events import Event, Gap, Log, Metadata, Progress, Started, Update
    from .forms import Question, question_service
    from .offers import Offer, OfferArgument
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
    from toolcell._lazy import lazy as _lazily

    _MODULES = {
        "toolcell.client.call": ("Call",),
        "toolcell.client.callbacks": ("Answer", "Ask"),
        "toolcell.client.catalog": ("Catalog", "Problem", "ToolInfo"),
        "toolcell.client.errors": ("Refused", "Unavailable"),
        "toolcell.client.events": ("Event", "Gap", "Log", "Metadata", "Progress", "Started", "Update"),
        "toolcell.client.forms": ("Question", "question_service"),
        "toolcell.client.limits": ("Limits",),
        "toolcell.client.offers": ("Offer", "OfferArgument"),
        "toolcell.client.outcome": (
            "Block",
            "CallFailed",
            "Facts",
            "FileData",
            "ImageData",
            "Kind",
            "Outcome",
            "Output",
            "ResourceLink",
            "Text",
        ),
        "toolcell.client.session": ("Session", "connect"),
    }
    __getattr__, __dir__ = _lazily(__name__, globals(), _MODULES)


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
    "Offer",
    "OfferArgument",
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
