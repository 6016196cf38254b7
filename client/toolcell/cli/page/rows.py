"""What the page is told of calls: rows of lists without their bodies, and figures over time.

A thousand calls are a hundred kilobytes so; with all that is known of each they would be two megabytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from toolcell.cli._ui.answers import outcome_of
from toolcell.cli._ui.format import time_of
from toolcell_proto.v1 import toolcell_pb2 as pb

BUCKETS: Final = 60
MESSAGE_CHARACTERS_MAX: Final = 300
NAME_CHARACTERS_MAX: Final = 1024


def row(call: pb.CallInfo) -> dict[str, Any]:
    """A call in a list."""
    outcome = outcome_of(call)
    facts = outcome.facts if outcome is not None else None
    return {
        "call_id": call.call_id,
        "tool": call.tool[:NAME_CHARACTERS_MAX],
        "state": call.state,
        "kind": outcome.kind.value if outcome is not None else None,
        "cause": outcome.cause if outcome is not None else None,
        "message": outcome.message[:MESSAGE_CHARACTERS_MAX] if outcome is not None else "",
        "accepted": _seconds(time_of(call.accepted)),
        "ended": _seconds(time_of(call.ended)),
        "queue_seconds": facts.queue_seconds if facts is not None else None,
        "run_seconds": facts.run_seconds if facts is not None else None,
        "memory_peak_bytes": facts.memory_peak_bytes if facts is not None else None,
        "agent": call.agent[:NAME_CHARACTERS_MAX],
        "session_id": call.session_id,
        "worker_id": call.worker_id,
        "directory": call.directory,
    }


def rates(rows: Iterable[dict[str, Any]], since: float, until: float) -> list[dict[str, Any]]:
    """Return figures of the ended calls of rows, in `BUCKETS` equal parts of a time, the oldest first.

    Args:
        rows: What `row` has returned.
        since: The beginning of the time, in seconds since 1970.
        until: Its end, later than that.
    """
    width = (until - since) / BUCKETS
    parts: list[list[dict[str, Any]]] = [[] for _ in range(BUCKETS)]
    for each in rows:
        if each["ended"] is not None and since <= each["ended"] < until:
            parts[min(int((each["ended"] - since) / width), BUCKETS - 1)].append(each)
    return [_figures(part, since + number * width) for number, part in enumerate(parts)]


def _figures(part: Sequence[dict[str, Any]], start: float) -> dict[str, Any]:
    ran = sorted(each["run_seconds"] for each in part if each["kind"] != "refused")
    return {
        "start": start,
        "ok": sum(each["kind"] == "ok" for each in part),
        "failed": sum(each["kind"] != "ok" for each in part),
        "median_seconds": statistics.median(ran) if ran else None,
        "longest_seconds": ran[-1] if ran else None,
    }


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
