"""Figures, endings and tables, as people read them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from toolcell.cli._ui import outcome_text
from toolcell.cli._ui.exit_codes import KIND_EXITS
from toolcell.cli._ui.format import ago, clean, until
from toolcell.cli._ui.tables import print_table
from toolcell.client import Facts, Kind, Outcome, Output, Text

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)  # a Wednesday


def test_times_are_near() -> None:
    assert ago(NOW - timedelta(seconds=3), NOW) == "3 s ago"
    assert ago(NOW, NOW) == "now"
    assert ago(None, NOW) == "-"
    assert until(NOW + timedelta(hours=2), NOW) == "until 14:00"
    assert until(NOW + timedelta(days=2), NOW) == "until Friday"
    assert until(NOW + timedelta(days=30), NOW) == "until 3 April"
    assert until(NOW + timedelta(days=400), NOW) == "until 8 April 2027"


def test_what_a_tool_says_cannot_rewrite_the_screen() -> None:
    assert clean("\x1b[2Jred\r\nalert\x07") == "\ufffd[2Jred alert\ufffd"


def test_every_kind_has_an_exit_code() -> None:
    assert set(KIND_EXITS) == {kind.value for kind in Kind}


def test_a_message_is_tool_kind_cause_and_what_to_do() -> None:
    limit = Outcome(Kind.limit_exceeded, "memory", "512 MiB of 512 MiB.\nTo raise it: …")
    assert outcome_text.message("render", limit) == (
        "render: limit_exceeded (memory): 512 MiB of 512 MiB.\n  To raise it: …"
    )
    assert outcome_text.message("a", Outcome(Kind.aborted, "client", "by you.")) == "a: aborted: by you."
    assert outcome_text.message("a", Outcome(Kind.ok)) == ""


def test_what_the_message_says_is_not_said_twice() -> None:
    failed = Outcome(Kind.tool_error, None, "no such table", (Text("no such table"),))
    assert outcome_text.result(failed) == ""
    assert outcome_text.result(replace(failed, content=(Text("partial"),))) == "partial"
    denied = Outcome(Kind.denied, None, "Denied: Delete it?")
    assert outcome_text.message("clean", denied) == "clean: denied: Delete it?"


def test_what_the_model_reads_beside_a_result_is_told_to_the_person_too() -> None:
    noted = Outcome(Kind.ok, content=(Text("fine"),), notes=("An older version\x1b[2J was run.",))
    assert outcome_text.result(noted) == "fine"
    assert list(outcome_text.remarks("say", noted, NOW)) == ["say: An older version\ufffd[2J was run."]


def test_an_output_that_was_cut_says_how_to_read_it() -> None:
    kept = Output("o-5c1e0123456789", 1_400_000, 1, 1_400_000, True, NOW + timedelta(days=2), "result")
    (remark,) = outcome_text.remarks("search_text", Outcome(Kind.ok, output=kept), NOW)
    assert remark == "search_text: 1.34 MiB; the whole of it, until Friday: toolcell output o-5c1e0123"
    part = replace(kept, complete=False, kept_bytes=64_000_000, source="stdout")
    (remark,) = outcome_text.remarks("a", Outcome(Kind.ok, facts=Facts(logs=(part,))), NOW)
    assert remark.startswith("a: stdout: 1.34 MiB; the first 61 MiB of it, until Friday")
    full = replace(part, reason="No space left on device")
    (remark,) = outcome_text.remarks("a", Outcome(Kind.ok, output=full), NOW)
    assert remark.startswith("a: 1.34 MiB; the first 61 MiB of it (No space left on device), until Friday")
    (remark,) = outcome_text.remarks("a", Outcome(Kind.ok, output=replace(full, id="")), NOW)
    assert remark == "a: 1.34 MiB, of which nothing could be kept: No space left on device."
    (remark,) = outcome_text.remarks("a", Outcome(Kind.ok, output=replace(part, id="")), NOW)
    assert remark == "a: 1.34 MiB, of which nothing could be kept."


def test_leftovers_and_lost_state_are_said() -> None:
    remarks = outcome_text.remarks(
        "a", Outcome(Kind.ok, facts=Facts(leftover_processes=1, state_lost=True)), NOW
    )
    assert [remark.partition(":")[2][:22] for remark in remarks] == [
        " what it had kept from",
        " it left 1 process beh",
    ]


@pytest.mark.parametrize(
    ("count", "told"), [(1, "a: 1 thread or task was still"), (3, "a: 3 threads or tasks were still")]
)
def test_threads_and_tasks_that_were_left_are_said(count: int, told: str) -> None:
    (remark,) = outcome_text.remarks("a", Outcome(Kind.ok, facts=Facts(leftover_threads=count)), NOW)
    assert remark.startswith(f"{told} running when it returned")


def test_a_table_into_a_pipe_is_not_cut_and_has_no_spaces_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("A", "N", "DIRECTORY"), [("x", "1", "/d" * 300), ("long", "22", "[bold]")], right=("N",))
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading == "A      N  DIRECTORY"
    assert first == "x      1  " + "/d" * 300
    assert second == "long  22  [bold]"
