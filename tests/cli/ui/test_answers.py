"""What is printed of a daemon's answers: the same, whether protobuf's library has read them or `wire`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from toolcell.cli._ui import answers
from toolcell.cli._ui.terminal import Terminal
from toolcell.client._grpc import wire
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

NOW = datetime(2026, 1, 1, tzinfo=UTC)
THEN = Timestamp(seconds=int(NOW.timestamp()) - 90, nanos=123_456_789)
FACTS = pb.Facts(
    queue_seconds=0.5, run_seconds=1.25, cpu_seconds=1, memory_peak_bytes=1 << 20, output_bytes=9, spilled_bytes=3,
    stop_seconds=0.1, killed_processes=2, leftover_processes=1, leftover_threads=3, refused_hosts=["a.test", "b.test"],
)  # fmt: skip
CALLS = [
    pb.CallInfo(call_id="c-1", tool="t", state="running", accepted=THEN, agent="cli", directory="/d"),
    pb.CallInfo(call_id="c-2", tool="t\x1b", state="ended", agent="a", agent_name="sub",
                outcome=pb.Outcome(kind=pb.OUTCOME_KIND_CRASHED, cause="SIGSEGV", message="after 2 ms.", facts=FACTS, notes=["old"])),
    pb.CallInfo(call_id="c-3", tool="t", state="ended", agent_name="main",
                outcome=pb.Outcome(kind=pb.OUTCOME_KIND_OK, ran=True, output=pb.Output(output_id="o-123", total_bytes=9, expires=THEN))),
    pb.CallInfo(call_id="c-4", tool="t", refusal_reason="BUSY", refusal="Too many."),
    pb.CallInfo(call_id="c-5", accepted=Timestamp(seconds=2**62)),
]  # fmt: skip
STORY = [
    op.StoryLine(time=THEN, text="accepted"),
    op.StoryLine(time=Timestamp(seconds=THEN.seconds + 3), text="ended\x07"),
]
WORKERS = [
    op.WorkerInfo(worker_id="w-1", state="busy", path="/t.py", pid=7, calls=3, since=THEN, call_id="c-1", memory_bytes=1 << 22),
    op.WorkerInfo(worker_id="w-2", state="idle", path="/ü.py"),
    op.WorkerInfo(
        worker_id="w-3", state="busy", pid=9, calls=8, started=THEN, memory_bytes=1 << 26, directory="/p",
        server=op.ServerUse(name="git", running=2, places=32, sessions=3, starts=4),
    ),
]  # fmt: skip
DEATHS = [op.WorkerDeath(cause="SIGSEGV"), op.WorkerDeath(cause="memory", stderr="x")]
STATUS = op.GetStatusResponse(
    state="serving", version="0", pid=7, started=THEN, socket="/s", sessions=1, workers=2, calls=3, calls_ended=4, memory_bytes=5 << 20,
    spill_bytes=6, spill_quota_bytes=7 << 20, config_files=["/a", "/b"], blanks=1, quarantined=1, state_directory="/state", log="journal",
)  # fmt: skip


class Clock(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return NOW.astimezone(tz)


def status(found: Any) -> None:
    answers.print_status(found, Terminal())


def calls(found: Any) -> None:
    answers.print_calls(found.calls)


CASES: list[tuple[Message, wire.Table, Callable[[Any], None]]] = [
    (op.ListCallsResponse(calls=CALLS), wire.LIST_CALLS_RESPONSE, calls),
    (op.ListCallsResponse(), wire.LIST_CALLS_RESPONSE, calls),
    *(
        (op.GetCallResponse(call=call, story=STORY, arguments='{"a":1}', result="said\nmore\n"), wire.GET_CALL_RESPONSE, answers.print_story)
        for call in CALLS
    ),
    (op.GetCallResponse(), wire.GET_CALL_RESPONSE, answers.print_story),
    (
        op.ListWorkersResponse(workers=WORKERS, quarantined=[op.Quarantined(path="/q.py", since=THEN, deaths=DEATHS)]),
        wire.LIST_WORKERS_RESPONSE, answers.print_workers,
    ),
    (op.ListWorkersResponse(), wire.LIST_WORKERS_RESPONSE, answers.print_workers),
    (op.ListWorkersResponse(workers=WORKERS[2:]), wire.LIST_WORKERS_RESPONSE, answers.print_workers),
    (STATUS, wire.GET_STATUS_RESPONSE, status),
    (op.GetStatusResponse(), wire.GET_STATUS_RESPONSE, status),
]  # fmt: skip


@pytest.mark.parametrize(("message", "table", "show"), CASES)
def test_a_message_of_either_library_is_printed_the_same(
    message: Message,
    table: wire.Table,
    show: Callable[[Any], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "datetime", Clock)
    show(message)
    whole = capsys.readouterr()
    show(wire.decode(table, message.SerializeToString()))
    assert capsys.readouterr() == whole
    assert whole.out
