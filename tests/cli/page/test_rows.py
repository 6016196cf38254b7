"""The figures of calls over time."""

from __future__ import annotations

from typing import Any

from toolcell.cli.page.rows import BUCKETS, rates


def ended(at: float | None, kind: str = "ok", run_seconds: float = 1.0) -> dict[str, Any]:
    return {"ended": at, "kind": kind, "run_seconds": run_seconds}


def test_calls_are_counted_in_the_part_in_which_they_ended() -> None:
    parts = rates([ended(0.0), ended(0.9, "crashed", 3.0), ended(59.999), ended(30.0)], 0.0, 60.0)
    assert len(parts) == BUCKETS
    assert [part["start"] for part in parts[:2]] == [0.0, 1.0]
    assert (parts[0]["ok"], parts[0]["failed"]) == (1, 1)
    assert (parts[0]["median_seconds"], parts[0]["longest_seconds"]) == (2.0, 3.0)
    assert [number for number, part in enumerate(parts) if part["ok"]] == [0, 30, 59]


def test_what_runs_or_ended_at_another_time_is_not_counted() -> None:
    parts = rates([ended(None), ended(-0.1), ended(60.0)], 0.0, 60.0)
    assert not any(part["ok"] + part["failed"] for part in parts)
    assert {part["median_seconds"] for part in parts} == {None}


def test_a_refused_call_failed_and_has_no_time() -> None:
    part = rates([ended(0.0, "refused", 0.0)], 0.0, 60.0)[0]
    assert (part["ok"], part["failed"], part["longest_seconds"]) == (0, 1, None)
