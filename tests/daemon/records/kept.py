"""Records in a directory of a test, and calls to record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from toolcelld.calls.call import Call
from toolcelld.calls.outcomes.history import CallHistory, CallSummary
from toolcelld.calls.outcomes.outcome import Facts, Kind, Outcome
from toolcelld.calls.request import Request
from toolcelld.config.schema import RecordsSection
from toolcelld.event_log import Broadcast, OperatorEvent
from toolcelld.records.ledger import Records

NOW = 1_800_000_000.0


@asynccontextmanager
async def recording(
    directory: Path, *, now: Callable[[], float] = lambda: NOW, ends: bool = True, **section: Any
) -> AsyncGenerator[Records]:
    """Records that are written; with `ends=False` the daemon is killed at the end."""
    history, happenings = CallHistory(), Broadcast[OperatorEvent]()
    records = Records(
        str(directory / "records.sqlite"),
        RecordsSection.model_validate(section),
        history,
        happenings,
        now=now,
    )
    records.start()
    kept = cast("Any", records)
    try:
        yield records
    finally:
        if ends:
            await records.aclose("of a test")
        else:
            kept._writer.stop()
            kept._journal.close()
            kept._lock.close()


def put(records: Records, *things: CallSummary | Call | OperatorEvent) -> None:
    """Record things, as a session and the daemon do."""
    history, happenings = cast("Any", records)._history, cast("Any", records)._happenings
    for thing in things:
        if isinstance(thing, CallSummary):
            history.add(thing)
        elif isinstance(thing, OperatorEvent):
            happenings.publish(thing)
        else:
            history.accept(thing)


def accepted(call_id: str, session_id: str = "s-1", at: float = NOW) -> Call:
    """A call that has not ended."""
    request = Request(call_id, "echo", b"{}", agent="claude")
    call = SimpleNamespace(
        id=call_id, request=request, session=SimpleNamespace(id=session_id, directory="/p"), plan=None,
        accepted_at=at,
    )  # fmt: skip
    made = object.__new__(Call)
    made.__dict__.update(call.__dict__)
    return made


def ended(
    call_id: str,
    kind: Kind = Kind.OK,
    cause: str = "",
    *,
    tool: str = "echo",
    session_id: str = "s-1",
    agent: str = "claude",
    at: float = NOW,
    message: str = "",
    arguments: bytes = b'{"text": "a"}',
) -> CallSummary:
    """A call that has ended at a time."""
    return CallSummary(
        call_id, session_id, tool, "/p/echo.py", "d1", "ended", "w-1", agent, "main", "/p", "", "", at - 1,
        Outcome(kind, cause, message, ran=True, facts=Facts(run_seconds=0.5, worker_id="w-1")),
        ((at - 1, "accepted"), (at, "ended")), ("", ""), arguments, len(arguments),
        b'{"content": [{"type": "text", "text": "b"}]}', 43,
    )  # fmt: skip
