"""What several nodes have answered, as one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from toolcell.client import Refused, Unavailable
from toolcell.client._grpc.methods import OperatorMethods
from toolcell.client._transport import nodes
from toolcell.client._transport.nodes import Nodes, merged
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import placement_pb2
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio


def call(name: str, accepted: int, state: str = "ended", **more: Any) -> pb.CallInfo:
    info = pb.CallInfo(call_id=name, state=state, **more)
    info.accepted.FromSeconds(accepted)
    return info


def lines(*moments: int) -> op.TailLogsResponse:
    found = op.TailLogsResponse()
    for moment in moments:
        found.lines.add(text=str(moment)).time.FromSeconds(moment)
    return found


def test_calls_are_in_the_order_of_one_daemon_and_no_more_than_were_asked_for() -> None:
    answers = {
        "n1": op.ListCallsResponse(calls=[call("running", 1, "running"), call("new", 9), call("old", 2)]),
        "n2": op.ListCallsResponse(calls=[call("newest", 10), call("oldest", 1)]),
    }
    found = merged(op.ListCallsRequest(limit=4), answers).calls
    assert [(each.node, each.call_id) for each in found] == [
        ("n1", "running"),
        ("n2", "newest"),
        ("n1", "new"),
        ("n1", "old"),
    ]


def test_each_node_whose_records_cannot_be_used_is_named() -> None:
    answers = {
        "n1": op.ListCallsResponse(records_fault="the disk is full"),
        "n2": op.ListCallsResponse(calls=[call("c", 1)]),
        "n3": op.ListCallsResponse(records_fault="a newer version wrote them"),
    }
    found = merged(op.ListCallsRequest(), answers)
    assert found.records_fault == "n1: the disk is full; n3: a newer version wrote them"
    assert len(found.calls) == 1


def test_a_row_has_the_node_that_was_asked_whatever_that_one_says() -> None:
    workers = op.ListWorkersResponse(
        workers=[op.WorkerInfo(worker_id="w", node="n2")], quarantined=[op.Quarantined(path="f", node="n2")]
    )
    found = merged(op.ListWorkersRequest(), {"n1": workers})
    assert [each.node for each in found.workers] == ["n1"]
    assert [each.node for each in found.quarantined] == ["n1"]
    whole = merged(op.GetCallRequest(), {"n1": op.GetCallResponse(call=call("c", 1, node="n2"))})
    assert whole.call.node == "n1"


def test_of_a_call_that_a_node_has_refused_the_run_on_the_next_one_is_shown() -> None:
    answers = {
        "n1": op.GetCallResponse(call=call("c", 9, refusal_reason="draining")),
        "n2": op.GetCallResponse(call=call("c", 5)),
    }
    assert merged(op.GetCallRequest(), answers).call.node == "n2"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (op.TailLogsRequest(lines=2), ["3", "4"]),
        (op.TailLogsRequest(lines=0), []),
        (op.TailLogsRequest(), ["1", "2", "3", "4"]),
    ],
)
def test_the_last_lines_of_all_logs_are_in_the_order_of_time(
    request_: op.TailLogsRequest, expected: list[str]
) -> None:
    found = merged(request_, {"n1": lines(1, 4), "n2": lines(2, 3)}).lines
    assert [line.text for line in found] == expected


async def test_nothing_is_asked_of_a_cluster_that_changes_something_or_does_not_end() -> None:
    """Its one node cannot be dialled, which would be another fault."""
    overseen = placement_pb2.OverseeResponse(nodes=[placement_pb2.OverseenNode(name="n1")])
    of_nodes = Nodes(overseen)
    method: Any
    request: Any
    for method, request in (
        (OperatorMethods.Drain, op.DrainRequest()),
        (OperatorMethods.Reload, op.ReloadRequest()),
        (OperatorMethods.WatchEvents, op.WatchEventsRequest()),
    ):
        with pytest.raises(Refused, match=r"is not asked of a cluster\.") as refused:
            await of_nodes.ask(method, request)
        assert refused.value.remedy == nodes.ONE_BY_ONE
    for method, request in (
        (OperatorMethods.TailLogs, op.TailLogsRequest(follow=True)),
        (OperatorMethods.WatchEvents, op.WatchEventsRequest()),
    ):
        with pytest.raises(Refused, match="is not followed"):
            async for _ in of_nodes.watch(method, request):
                pass


async def test_a_node_that_answers_without_end_is_not_heard_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "ANSWER_BYTES_MAX", 1000)

    async def flood(*_: Any) -> AsyncIterator[op.TailLogsResponse]:
        while True:
            yield lines(*range(10))

    channel: Any = SimpleNamespace(watch=flood)
    with pytest.raises(Unavailable, match="more than 1000 bytes"):
        await nodes._collected(channel, OperatorMethods.TailLogs, op.TailLogsRequest())
