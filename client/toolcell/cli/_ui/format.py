"""Times that are near, and texts that fit a terminal's line."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import TYPE_CHECKING, Final

from toolcell._units import format_seconds

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from toolcell.client._grpc.wire import WireMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(time: Timestamp | WireMessage) -> datetime | None:
    """Return a time of the wire; None where it is not set, or is none."""
    try:
        known = time.seconds or time.nanos
        return _EPOCH + timedelta(seconds=time.seconds, microseconds=time.nanos // 1000) if known else None
    except OverflowError:
        return None


def time_ago(seconds: float | None) -> Timestamp | None:
    """Return a time of the wire that is so many seconds before now; None for None."""
    if seconds is None:
        return None
    from google.protobuf.timestamp_pb2 import Timestamp  # late: `quick` prints by this module, and needs none

    moment = Timestamp()
    moment.FromNanoseconds(max(0, time_ns() - int(seconds * 1e9)))
    return moment


def ago(time: datetime | None, now: datetime) -> str:
    """ "12 s ago"; "-" for what has not been."""
    if time is None:
        return "-"
    seconds = (now - time).total_seconds()
    if seconds < 0.5:
        return "now"
    return f"{seconds:.0f} s ago" if seconds < 10 else f"{format_seconds(seconds)} ago"


def until(time: datetime, now: datetime) -> str:
    """ "until 14:05", "until Friday", "until 12 March", in the zone that `now` has."""
    local = time.astimezone(now.tzinfo)
    if local.date() == now.date():
        return f"until {local:%H:%M}"
    if local - now <= timedelta(days=7):
        return f"until {local:%A}"
    return f"until {local.day} {local:%B}" if local.year == now.year else f"until {local.day} {local:%B %Y}"


def clean(text: str) -> str:
    """Make one line for a terminal, without escape sequences of a tool."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))


def shown_path(path: str) -> str:
    """Return the path of a tool file from the current directory where it lies below it, else whole; see `shown_file`."""
    here = os.getcwd().rstrip("/") + "/"
    return shown_file(path.removeprefix(here))


def shown_file(path: str) -> str:
    """Return the path of a tool file on one line; that of an MCP server, which is no file, is its name and where it stands."""
    from toolcell._file_kinds import SERVER  # late: the warm call needs none

    above, name = os.path.split(path)
    if not name.endswith(SERVER.suffix):
        return clean(path)
    # Behind it is the digest of a project's command
    server = name.removesuffix(SERVER.suffix).partition("@")[0]
    return clean(f"MCP server {server} of {above}")
