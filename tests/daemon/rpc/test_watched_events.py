"""Events that are followed: the earlier ones of the records, and then each new one, once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.daemon.records.kept import NOW, put, recording

from toolcell_proto.v1 import operator_pb2 as pb
from toolcelld.event_log import OperatorEvent
from toolcelld.records.ledger import Records
from toolcelld.rpc.operators.history import History

pytestmark = pytest.mark.anyio


def decided(number: int, kind: str = "decision.reload", **more: Any) -> OperatorEvent:
    return OperatorEvent(kind, NOW + number, message=str(number), **more)


class Asked:
    """The records, in which something happens while they are asked."""

    def __init__(self, records: Records, meanwhile: Sequence[OperatorEvent]) -> None:
        self._records = records
        self._meanwhile = meanwhile

    async def events(self, *wanted: Any) -> list[OperatorEvent]:
        early, late = self._meanwhile[:1], self._meanwhile[1:]
        put(self._records, *early)
        found = await self._records.events(*wanted)
        put(self._records, *late)
        return found


def history(records: Records, *meanwhile: OperatorEvent) -> History:
    services = SimpleNamespace(happenings=cast("Any", records)._happenings)
    return History(cast("Any", SimpleNamespace(services=services, records=Asked(records, meanwhile))))


async def told(watched: Any, count: int) -> list[str]:
    async with aclosing(cast("AsyncGenerator[pb.WatchEventsResponse]", watched)) as events:
        found: list[str] = []
        async for event in events:
            found.append(event.message)
            if len(found) == count:
                break
        return found


async def test_no_event_is_missed_or_told_twice_between_earlier_and_new_ones(tmp_path: Path) -> None:
    async with recording(tmp_path) as records:
        put(records, decided(1), decided(2, "session.opened"), decided(3))
        request = pb.WatchEventsRequest(
            type="decision.", recorded=True, earlier=pb.ListEventsRequest(type="decision.")
        )
        watched = history(records, decided(4), decided(5), decided(6, "worker.started")).watch(request)
        assert await told(watched, 4) == ["1", "3", "4", "5"]


async def test_events_of_other_tools_are_left_out(tmp_path: Path) -> None:
    async with recording(tmp_path) as records:
        request = pb.WatchEventsRequest(tool="t", earlier=pb.ListEventsRequest(tool="t"))
        meanwhile = decided(1, tool="t"), decided(2, tool="other"), decided(3, tool="t")
        assert await told(history(records, *meanwhile).watch(request), 2) == ["1", "3"]
