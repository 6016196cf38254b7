"""The API for adapter authors: `connect` opens a Session with the daemon, which runs Calls.

    async with connect(directory=".") as session:
        outcome = await session.call("words", {"path": "README.md"})

A call always ends with an Outcome, never with an exception, whatever fails: the tool, the daemon or the connection.
Cancelling a task that awaits a call aborts the call, and the cancellation is delivered when the tool has stopped.

It runs on asyncio, also in a notebook: `async with connect() as session:`. Where no event loop runs, or trio's, there is
`toolcell.client.blocking`.
"""

from .call import Call
from .callbacks import Answer, Ask
from .catalog import Catalog, Problem, ToolInfo
from .errors import Refused, Unavailable
from .events import Event, Gap, Log, Metadata, Progress, Started, Update
from .forms import Question, question_service
from .limits import Limits
from .outcome import Block, CallFailed, Facts, FileData, ImageData, Kind, Outcome, Output, ResourceLink, Text
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
