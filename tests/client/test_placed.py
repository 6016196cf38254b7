"""What a client asks of several Placements, without any process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolcell.cli.operation.cluster import others_of
from toolcell.client import Refused, Unavailable
from toolcell.client._grpc.placement import PlacementMethods
from toolcell.client._launch import placed
from toolcell.client._launch.placed import Membership, Placed
from toolcell.client.errors import Code, Refusal
from toolcell_proto.v1 import placement_pb2 as pb
from toolcell_proto.v1 import toolcell_pb2

pytestmark = pytest.mark.anyio

RENEW = PlacementMethods.Renew, pb.RenewRequest(session_id="s")


class Asked:
    """A Placement that answers, or fails, and counts how often it was asked."""

    def __init__(self, answer: Exception | str) -> None:
        self.answer = answer
        self.count = 0

    @asynccontextmanager
    async def dial(self) -> AsyncGenerator[Asked]:
        if isinstance(self.answer, Unavailable):
            self.count += 1
            raise self.answer
        yield self

    async def ask(self, *_: Any) -> pb.RenewResponse:
        self.count += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return pb.RenewResponse(ticket=self.answer)


def client(monkeypatch: pytest.MonkeyPatch, *asked: Asked) -> Placed:
    made = list(asked)
    monkeypatch.setattr(placed, "_placements", lambda *_: list(made))
    monkeypatch.setattr(placed, "read_membership", lambda: None)
    return Placed("cluster", Membership(placement="a:1", node="a", authority="", ticket=""), "")


def refusal(reason: str) -> Refused:
    return Refused(Refusal(Code.FAILED_PRECONDITION, reason, f"It is {reason}."))


@pytest.mark.parametrize(
    "failure", [Unavailable("It is gone."), refusal("moved"), refusal("deadline_exceeded")]
)
async def test_the_next_placement_is_asked_and_is_the_first_one_from_then_on(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    first, second = Asked(failure), Asked("ticket")
    asking = client(monkeypatch, first, second)
    for _ in range(3):
        assert (await asking._ask(*RENEW)).ticket == "ticket"
    assert (first.count, second.count) == (1, 3)


async def test_what_one_placement_refuses_is_asked_of_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Asked(refusal("not_allowed")), Asked("ticket")
    with pytest.raises(Refused, match="not_allowed"):
        await client(monkeypatch, first, second)._ask(*RENEW)
    assert second.count == 0


async def test_where_none_answers_the_one_that_said_why_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = client(monkeypatch, Asked(Unavailable("It is gone.")), Asked(refusal("moved")))
    with pytest.raises(Refused, match="moved"):
        await asking._ask(*RENEW)
    with pytest.raises(Unavailable, match="gone"):
        await client(monkeypatch, Asked(Unavailable("It is gone.")))._ask(*RENEW)


async def test_each_placement_that_can_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    one, gone, two = Asked("one"), Asked(Unavailable("It is gone.")), Asked("two")
    client(monkeypatch, one, gone, two)
    assert (await placed.ask_each(*RENEW)).ticket == "one"
    assert (one.count, two.count) == (1, 1)
    client(monkeypatch, gone)
    with pytest.raises(Unavailable):
        await placed.ask_each(*RENEW)


def test_of_the_others_that_a_machine_names_only_addresses_are_kept() -> None:
    answer = toolcell_pb2.JoinResponse(
        others=[
            "10.0.0.2:7443",
            "",
            "x",
            "h:1\nh:2",
            "h:0",
            "h :1",
            "\u2028h:1",
            "10.0.0.2:7443",
            "[::1]:9",
            "\u0661:1",
        ]
        + [f"h{number}:1" for number in range(100)]
    )
    found = others_of(answer)
    assert found[:2] == ["10.0.0.2:7443", "[::1]:9"]
    assert len(found) == 7
