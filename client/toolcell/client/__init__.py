"""For adapter authors: a Session with the daemon, and its Calls.

    async with connect(directory=".") as session:
        outcome = await session.call("words", {"path": "README.md"})

A call ends in an Outcome, never in an exception, whatever happened to the tool, the daemon or the line.
Cancelling whoever awaits a call aborts it, and the cancellation is delivered when the tool has stopped.
"""

from .call import Call
from .callbacks import Answer, Ask
from .catalog import Catalog, Problem, ToolInfo
from .errors import Refused, Unavailable
from .events import Event, Gap, Log, Metadata, Progress, Started, Update
from .limits import Limits
from .outcome import Block, CallFailed, Facts, ImageData, Kind, Outcome, Output, ResourceLink, Text
from .session import Session, connect

__all__ = [
    "Answer",
    "Ask",
    "Block",
    "Call",
    "CallFailed",
    "Catalog",
    "Event",
    "Facts",
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
    "Refused",
    "ResourceLink",
    "Session",
    "Started",
    "Text",
    "ToolInfo",
    "Unavailable",
    "Update",
    "connect",
]
