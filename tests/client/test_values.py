"""The pure half of the client: what comes in pieces, what is not read, and values as JSON."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from typing import cast

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.client import (
    Facts,
    Gap,
    ImageData,
    Kind,
    Limits,
    Log,
    Outcome,
    Progress,
    ResourceLink,
    Text,
    Update,
)
from toolcell.client._transport.json_values import decode, encode_arguments
from toolcell.client._transport.messages import read_outcome
from toolcell.client._transport.receive_buffer import ReceiveBuffer
from toolcell.client._transport.send_queue import SOURCES_MAX, SendQueue
from toolcell.client.errors import Code, refusal_of
from toolcell.client.events import UNREAD_BYTES_MAX, UNREAD_EVENTS_MAX, Event, EventBuffer
from toolcell.client.limits import encode_limits
from toolcell_proto.v1 import toolcell_pb2 as pb

from .scripted import body, status


def cut(call_id: str, data: bytes, size: int) -> list[pb.Event]:
    """A result as a daemon sends it: a head and chunks."""
    parts = [data[start : start + size] for start in range(0, len(data), size)] or [b""]
    head = pb.Event(call_id=call_id, outcome=pb.Outcome(body=parts[0], more=len(parts) > 1))
    chunks = [
        pb.Event(chunk=pb.Chunk(call_id=call_id, data=part, last=number == len(parts) - 1))
        for number, part in enumerate(parts[1:], 1)
    ]
    return [head, *chunks]


@given(
    bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=4),
    size=st.integers(1, 20),
    turns=st.lists(st.integers(0, 3), max_size=60),
    drops=st.sets(st.integers(0, 60), max_size=5),
)
def test_every_body_arrives_whole_once_whatever_is_interleaved_and_sent_again(
    bodies: list[bytes], size: int, turns: list[int], drops: set[int]
) -> None:
    waiting = [cut(f"c-{n}", data, size) for n, data in enumerate(bodies)]
    stream = [mine.pop(0) for turn in turns if (mine := waiting[turn % len(waiting)])]
    stream += [event for rest in waiting for event in rest]
    for number, event in enumerate(stream, 1):
        event.number = number
    inbox, arrived, place = ReceiveBuffer(), list[tuple[str, bytes]](), 0
    while place < len(stream):
        if (whole := inbox.take(stream[place])) is not None:
            arrived.append((whole[1].call_id, whole[2]))
        place += 1
        if place in drops:
            drops = drops - {place}
            place = inbox.acknowledge()  # the daemon sends again all that was not acknowledged
    assert sorted(arrived) == [(f"c-{n}", data) for n, data in enumerate(bodies)]
    assert inbox.acknowledge() == len(stream)
    assert not inbox.owes


def test_a_head_is_not_acknowledged_before_its_last_chunk() -> None:
    head, middle, last = cut("c-1", b"abcdef", 2)
    inbox = ReceiveBuffer()
    for number, event in enumerate((pb.Event(), head, middle), 1):
        event.number = number
        inbox.take(event)
    assert inbox.acknowledge() == 1
    last.number = 4
    assert inbox.take(last) == ("outcome", head, b"abcdef")
    assert inbox.acknowledge() == 4


def test_a_body_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcell.client._transport.receive_buffer.BODY_BYTES_MAX", 10)
    inbox = ReceiveBuffer()
    whole = None
    for event in cut("c-1", body("x" * 100), 8):
        whole = inbox.take(event)
    assert whole is not None
    sort, head, data = whole
    assert sort == "outcome"
    assert len(data) <= 10
    assert read_outcome(head.outcome, data).cause == "unreadable_result"


def test_an_update_that_was_given_up_half_way_does_not_end_in_the_outcome() -> None:
    inbox = ReceiveBuffer()
    assert inbox.take(pb.Event(call_id="c-1", update=pb.Update(body=b"half", more=True))) is None
    outcome = pb.Event(call_id="c-1", outcome=pb.Outcome(body=b"whole"))
    assert inbox.take(outcome) == ("outcome", outcome, b"whole")
    assert inbox.take(pb.Event(chunk=pb.Chunk(call_id="c-1", data=b"late", last=True))) is None


@given(st.lists(st.integers(0, 5), max_size=9))
def test_sources_take_turns_and_every_message_goes_once_in_its_own_order(lengths: list[int]) -> None:
    def source(number: int, length: int) -> Iterator[pb.AttachRequest]:
        for n in range(length):
            yield pb.AttachRequest(chunk=pb.Chunk(call_id=f"{number}.{n}"))

    outbox, taken = SendQueue(), list[str]()
    for number, length in enumerate(lengths):
        outbox.put(source(number, length))
    while (message := outbox.take()) is not None:
        taken.append(message.chunk.call_id)
    assert len(set(taken)) == len(taken) == sum(lengths)
    for number, length in enumerate(lengths):
        mine = [place for place, name in enumerate(taken) if name.startswith(f"{number}.")]
        assert [taken[place] for place in mine] == [f"{number}.{n}" for n in range(length)]
        assert all(later - place <= SOURCES_MAX for place, later in pairwise(mine)), (
            "no source is kept waiting"
        )


@given(st.lists(st.integers(1, 400_000), max_size=30))
def test_what_nobody_reads_is_bounded_the_newest_stays_and_the_rest_is_counted(lengths: list[int]) -> None:
    unread = EventBuffer()
    for number, length in enumerate(lengths):
        unread.put(Log(str(number), "stdout", "x"), length)
    read: list[Event] = []
    while (event := unread.take()) is not None:
        read.append(event)
    lost = sum(event.count for event in read if isinstance(event, Gap))
    logs = [event for event in read if isinstance(event, Log)]
    assert lost + len(logs) == len(lengths)
    assert [int(log.level) for log in logs] == list(range(lost, len(lengths)))
    assert not logs or sum(lengths[lost:]) <= UNREAD_BYTES_MAX or len(logs) == 1
    assert lost == 0 or isinstance(read[0], Gap)


def test_a_talkative_sort_of_event_drives_out_its_own() -> None:
    unread = EventBuffer()
    unread.put(Update((Text("half"),), None), 100)
    for number in range(2 * UNREAD_EVENTS_MAX):
        unread.put(Progress(number, None, ""), 1)
    unread.put(Gap(7), 0)
    assert unread.take() == Gap(UNREAD_EVENTS_MAX + 1 + 7)
    assert unread.take() == Update((Text("half"),), None)
    assert unread.take() == Progress(UNREAD_EVENTS_MAX + 1, None, "")


def test_an_outcome_as_json_has_the_keys_that_were_promised() -> None:
    message = pb.Outcome(
        kind=pb.OUTCOME_KIND_LIMIT_EXCEEDED,
        cause="memory",
        message="512 MiB of 512 MiB",
        body=json.dumps(
            {
                "content": [
                    {"type": "text", "text": "so far"},
                    {"type": "image", "data": "AAE=", "mime_type": "image/png"},
                    {"type": "resource_link", "uri": "file:///a", "name": "a"},
                ]
            }
        ).encode(),
        ran=True,
        stopped=pb.STOPPED_KILLED,
        output=pb.Output(
            output_id="o-1", total_bytes=9, total_lines=2, kept_bytes=8, source="result", reason="No space"
        ),
        facts=pb.Facts(queue_seconds=0.5, worker_id="w-3", generation=4),
    )
    message.output.expires.FromJsonString("2026-01-02T03:04:05Z")
    outcome = read_outcome(message, message.body)
    assert outcome.content == (
        Text("so far"),
        ImageData(b"\0\1", "image/png"),
        ResourceLink("file:///a", "a", None),
    )
    assert (
        outcome.text
        == "limit_exceeded (memory): 512 MiB of 512 MiB\n\nso far\n[image: image/png, 2 bytes]\n[a: file:///a]"
    )
    known = outcome.to_dict()
    assert json.loads(json.dumps(known)) == known
    assert list(known)[:10] == [
        "kind", "cause", "message", "content", "details", "metadata", "output", "ran", "stopped", "facts",
    ]  # fmt: skip
    assert list(known["facts"])[:8] == [
        "queue_seconds", "run_seconds", "cpu_seconds", "memory_peak_bytes", "output_bytes", "spilled_bytes",
        "worker_id", "generation",
    ]  # fmt: skip
    assert (known["kind"], known["details"], known["stopped"]) == ("limit_exceeded", None, "killed")
    assert known["output"] == {
        "id": "o-1",
        "bytes": 9,
        "lines": 2,
        "kept_bytes": 8,
        "complete": False,
        "expires_at": "2026-01-02T03:04:05Z",
        "source": "result",
        "reason": "No space",
    }
    assert [block["type"] for block in known["content"]] == ["text", "image", "resource_link"]
    assert known["content"][1]["data"] == "AAE="


def test_facts_that_were_not_read_are_those_that_were_sent() -> None:
    def received() -> Outcome:
        facts = pb.Facts(run_seconds=1.5, worker_id="w-3", refused_hosts=["example.com"])
        return read_outcome(pb.Outcome(kind=pb.OUTCOME_KIND_OK, ran=True, facts=facts), b"")

    whole = Outcome(
        Kind.ok, ran=True, facts=Facts(run_seconds=1.5, worker_id="w-3", refused_hosts=("example.com",))
    )
    assert received() == whole
    assert repr(received()) == repr(whole)
    assert replace(received(), message="more") == replace(whole, message="more")
    assert pickle.loads(pickle.dumps(received())) == copy.deepcopy(received()) == whole  # noqa: S301  our own
    outcome = received()
    assert outcome.facts is outcome.facts
    with pytest.raises(FrozenInstanceError):
        outcome.facts = Facts()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match="'Outcome' object has no attribute 'fact'"):
        _ = outcome.fact  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType]


def test_space_around_a_value_is_none_of_it_and_more_than_a_value_is_an_error() -> None:
    assert decode(b' {"a": "\xc3\xbc"}\n') == decode(b'{"a":"\xc3\xbc"}') == {"a": "ü"}
    for data in (b"{} {}", b"{}x", b"", b" ", b"\xff"):
        with pytest.raises(ValueError):
            decode(data)


def test_every_kind_of_the_contract_has_its_word() -> None:
    for name, number in pb.OutcomeKind.items():
        if number:
            assert (
                read_outcome(pb.Outcome(kind=number), b"").kind == name.removeprefix("OUTCOME_KIND_").lower()
            )


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome(Kind.ok, content=(Text("a"), Text("b"))), "a\nb"),
        (Outcome(Kind.tool_error, message="No file", content=(Text("No file"),)), "No file"),
        (Outcome(Kind.timed_out, message="5.0 s", content=(Text("half"),)), "timed_out: 5.0 s\n\nhalf"),
        (Outcome(Kind.crashed, "SIGSEGV", "ended after 2 ms"), "crashed (SIGSEGV): ended after 2 ms"),
    ],
)
def test_the_text_is_what_to_give_the_model(outcome: Outcome, text: str) -> None:
    assert outcome.text == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=10,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_arguments_that_are_json_arrive_as_they_were(arguments: dict[str, object]) -> None:
    assert json.loads(encode_arguments("echo", arguments) or b"{}") == arguments


def test_limits_are_read_with_their_units_and_a_time_out_bounds_the_queue_as_well() -> None:
    assert encode_limits(None) is None
    assert encode_limits({"memory": "512MiB", "output_bytes": 9}) == pb.Limits(
        memory_bytes=2**29, output_bytes=9
    )
    assert encode_limits({"timeout": 3}, 5) == pb.Limits(timeout_seconds=3)
    with pytest.raises(ValueError, match="memory is 'much'"):
        encode_limits({"memory": "much"})
    with pytest.raises(ValueError, match="no 'memry'"):
        encode_limits(cast("Limits", {"memry": 1}))
    with pytest.raises(ValueError, match="more than 0"):
        encode_limits(None, 0)


def test_every_limit_can_be_lowered_by_a_call() -> None:
    message = encode_limits(cast("Limits", dict.fromkeys(Limits.__annotations__, 7)))
    assert message is not None
    assert dict(message.ListFields()) == dict.fromkeys(pb.Limits.DESCRIPTOR.fields, 7)


def test_a_refusal_says_nothing_twice_and_no_field_of_the_contract_without_need() -> None:
    fields = [("call.tool", "no tool 'nope'"), ("call.call_id", "is too long")]
    refusal = refusal_of(status(grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOOL", "no tool 'nope'", fields=fields))
    assert (refusal.code, refusal.reason) == (Code.NOT_FOUND, "unknown_tool")
    assert refusal.message == "no tool 'nope'\n  call.call_id: is too long"
    assert refusal.remedy == "See what the directory offers: toolcell tools"
