"""What is asked of the records, as SQL; the same of the calls that the daemon still has in memory.

Each query names its index: without figures about the rows SQLite would take one of many, and a million rows would be read
for a hundred. The indices end with the time, so that the newest rows that fit are the first ones found.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from toolcelld.calls.outcomes.history import CallSummary
from toolcelld.calls.outcomes.outcome import Kind
from toolcelld.event_log import DECISION
from toolcelld.records.rows import LOST, REFUSED
from toolcelld.records.tables import CALL_COLUMNS

OUTCOMES: Final = frozenset({*(kind.value for kind in Kind), REFUSED, LOST})
EVENT_COLUMNS: Final = "run, time, type, session_id, call_id, worker_id, tool, message, details"


class CallFilter(NamedTuple):
    """Which calls; an empty value leaves all."""

    tool: str = ""
    session_id: str = ""
    agent: str = ""
    outcome: str = ""  # or its cause
    since: float = 0.0  # ended at that time or later; those that have not ended are always later
    until: float = 0.0  # ended before; 0 for no such bound
    failed: bool = False  # whether only those that did not end with "ok"

    def fits(self, call: CallSummary) -> bool:
        """Return whether it is a call that is asked for."""
        outcome = call.outcome
        kind, cause = (outcome.kind, outcome.cause) if outcome is not None else ("", call.refusal[0])
        if outcome is None and cause:
            kind = REFUSED
        ended = call.story[-1][0] if kind else 0.0
        return (
            self.tool in ("", call.tool)
            and self.session_id in ("", call.session_id)
            and self.agent in ("", call.agent)
            and self.outcome in ("", kind, cause)
            and not (self.failed and kind in ("", Kind.OK))
            and not (kind and ended < self.since)
            and not (self.until and not 0 < ended < self.until)
        )


class EventFilter(NamedTuple):
    """Which events; an empty value leaves all."""

    type: str = ""  # "decision." for all of a person
    session_id: str = ""
    tool: str = ""
    since: float = 0.0
    until: float = 0.0


def calls_sql(wanted: CallFilter, limit: int) -> tuple[str, list[Any]]:
    """Return the query for the newest calls that fit, the newest first."""
    outcome = "outcome" if wanted.outcome in OUTCOMES else "cause"
    went_well = wanted.outcome == Kind.OK
    places = {
        "calls_by_session": ("session_id = ?", wanted.session_id),
        # What went well is most of all, and in no index of its own; only such a call has no cause.
        f"calls_by_{outcome}": (f"{outcome} = ? AND outcome <> 'ok'", "" if went_well else wanted.outcome),
        "calls_failed": ("outcome <> 'ok'", wanted.failed),
        "calls_by_agent": ("agent = ?", wanted.agent),
        "calls_by_tool": ("tool = ?", wanted.tool),
    }  # the one that fits the fewest rows first
    if went_well:
        places["calls_by_time"] = ("outcome = ?", wanted.outcome)
    return _sql("calls", ", ".join(CALL_COLUMNS), "ended", places, wanted.since, wanted.until, limit)


def events_sql(wanted: EventFilter, limit: int) -> tuple[str, list[Any]]:
    """Return the query for the newest events that fit, the newest first."""
    places = {
        "events_by_session": ("session_id = ?", wanted.session_id),
        "events_by_tool": ("tool = ?", wanted.tool),
    }
    if wanted.type == DECISION:
        places["events_decided"] = ("type GLOB 'decision.*'", True)  # type: ignore[assignment]
    else:
        places["events_by_type"] = ("type = ?", wanted.type)
    return _sql("events", EVENT_COLUMNS, "time", places, wanted.since, wanted.until, limit)


def _sql(
    table: str,
    columns: str,
    time: str,
    places: dict[str, tuple[str, Any]],
    since: float,
    until: float,
    limit: int,
) -> tuple[str, list[Any]]:
    index = next((name for name, (_, value) in places.items() if value), f"{table}_by_time")
    where = [(text, value) for text, value in places.values() if value]
    where += [(f"{time} >= ?", since), *([(f"{time} < ?", until)] if until else [])]
    conditions = " AND ".join(text for text, _ in where)
    order = f"ORDER BY {time} DESC, number DESC LIMIT ?"
    sql = f"SELECT {columns} FROM {table} INDEXED BY {index} WHERE {conditions} {order}"  # noqa: S608  # names of ours
    return sql, [*(value for text, value in where if "?" in text), limit]


def find_sql(beginning: str, limit: int) -> tuple[str, list[Any]]:
    """Return the query for the calls whose id begins with a text, the newest last."""
    columns = ", ".join(CALL_COLUMNS)
    sql = f"SELECT {columns} FROM calls INDEXED BY calls_by_id WHERE call_id >= ? AND call_id < ? ORDER BY call_id LIMIT ?"  # noqa: S608  # names of ours
    return sql, [beginning, beginning + "\U0010ffff", limit]
