"""What `calls`, `events` and `audit` ask the records for."""

from __future__ import annotations

import time
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from toolcell_proto.v1 import operator_pb2 as op


def calls_request(
    *, session: str, since: float | None, until: float | None, **filters: Any
) -> op.ListCallsRequest:
    """Return the request for calls; times are seconds before now, None for no bound."""
    return op.ListCallsRequest(session_id=session, since=_ago(since), until=_ago(until), **filters)


def events_request(
    *, kind: str, session: str = "", since: float | None, until: float | None, **filters: Any
) -> op.ListEventsRequest:
    """Return the request for events; times are seconds before now, None for no bound."""
    return op.ListEventsRequest(
        type=kind, session_id=session, since=_ago(since), until=_ago(until), **filters
    )


def _ago(seconds: float | None) -> Timestamp | None:
    if seconds is None:
        return None
    moment = Timestamp()
    moment.FromNanoseconds(max(0, time.time_ns() - int(seconds * 1e9)))
    return moment
