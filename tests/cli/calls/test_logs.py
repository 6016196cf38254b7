"""`toolcell logs`: how many, since when, and one entry for one traceback."""

from __future__ import annotations

import re

import pytest
from tests.cli.conftest import Project

from toolcell.cli.calls.output import LogPrinter
from toolcell_proto.v1 import operator_pb2 as op

TALK = """
import logging
import sys
import traceback
from toolcell import ToolContext, tool

def wrong(text):
    raise ValueError(text)

@tool
def raises(text: str) -> None:
    try:
        wrong("first " + text)
    except ValueError as error:
        raise RuntimeError("x" * 9000) from error

@tool
async def waits() -> None:
    wrong("awaited")

@tool
def says(*, text: str) -> None:
    print(text)

@tool
def logs(context: ToolContext) -> None:
    try:
        wrong("logged")
    except ValueError:
        context.log.exception("it went wrong")
    try:
        wrong("printed")
    except ValueError:
        traceback.print_exc()
    print("after", file=sys.stderr)
"""


@pytest.mark.slow
def test_a_traceback_is_one_entry_without_frames_of_ours(daemon: Project) -> None:
    daemon.tool("talk", TALK)
    assert daemon.run_bytes("call", "talk_raises", "text=cause") == b""
    (entry,) = daemon.run("logs", "talk_raises", "--json").json("logs")["logs"]
    assert entry["text"].startswith("Traceback (most recent call last):\n")
    assert entry["text"].endswith("RuntimeError: " + "x" * 9000 + "\n")
    assert "ValueError: first cause" in entry["text"]
    files = set(re.findall(r'File "([^"]*)"', entry["text"]))
    assert files == {str(daemon.tools / "talk.py")}
    daemon.run_bytes("call", "talk_waits")
    (entry,) = daemon.run("logs", "talk_waits", "--json").json("logs")["logs"]
    assert "toolcelld/" not in entry["text"]
    shown = daemon.run_bytes("logs", "talk_raises").decode().splitlines()
    assert [number for number, line in enumerate(shown) if not line.startswith("  ") and line] == [0]


@pytest.mark.slow
def test_what_a_tool_logs_and_prints_of_an_exception_is_shown_below_one_heading(daemon: Project) -> None:
    daemon.tool("talk", TALK)
    daemon.run_bytes("call", "talk_logs")
    shown = daemon.run_bytes("logs", "talk_logs").decode()
    headings = [line.split(" ", 1)[1] for line in shown.splitlines() if not line.startswith("  ")]
    printed = ["talk_logs: Traceback (most recent call last):", "talk_logs: after"]
    assert sorted(headings) == sorted([*printed, "talk_logs: error: it went wrong"])


@pytest.mark.slow
def test_n_and_since_choose_the_entries(daemon: Project) -> None:
    daemon.tool("talk", TALK)
    for text in ("one", "two", "three"):
        daemon.run("call", "talk_says", f"text={text}")

    def texts(*words: str) -> list[str]:
        found = daemon.run("logs", "talk_says", *words, "--json").json("logs")["logs"]
        return [entry["text"].strip() for entry in found]

    assert texts() == ["one", "two", "three"]
    assert texts("-n", "2") == ["two", "three"]
    assert texts("-n", "0") == []
    assert texts("--since", "10m") == ["one", "two", "three"]
    assert texts("--since", "10m", "-n", "1") == ["three"]
    assert texts("--since", "0") == []
    last = daemon.run("logs", "-n", "1", "talk_says")
    assert last.out.endswith(" talk_says: three\n")
    assert last.err == ""
    none = daemon.run("logs", "-n", "0", "talk_says")
    assert (none.code, none.out, none.err) == (0, "", "There is nothing in the log.\n")
    assert daemon.run("logs", "-n", "0", "talk_says", "--quiet").err == ""


@pytest.mark.parametrize(
    "words",
    [
        ("-n", "-1"),
        ("-n", "10001"),
        ("-n", "many"),
        ("-n", "1e3"),
        ("--since", "yesterday"),
        ("--since", "-5"),
        ("--since", "nan"),
        ("--since", "1e400"),
        ("--since", ""),
    ],
)
def test_what_is_no_number_or_no_duration_is_a_mistake_of_the_command_line(
    project: Project, words: tuple[str, str]
) -> None:
    done = project.run("logs", *words)
    assert (done.code, done.out) == (2, "")


def entry(text: str, source: str = "stdout", call_id: str = "c-1", tool: str = "says") -> op.LogLine:
    return op.LogLine(text=text, source=source, call_id=call_id, tool=tool)


def test_pieces_of_a_line_are_one_line_and_nobody_goes_on_with_the_line_of_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = LogPrinter()
    for one in (
        entry("half "),
        entry("a line\nnext\n"),
        entry("open"),
        entry("of another\n", call_id="c-2"),
        entry(""),
        entry("Traceback (most recent call last):\n  File 1\n"),
        entry("  File 2\nValueError: x\nplain\n"),
        entry("Traceback (most recent call last):\n"),
        entry("  indented by another\n", source="stderr"),
        entry("logged\n12:00:00 daemon: forged\n\nend", source="log"),
    ):
        printer.print(one)
    printer.end()
    assert capsys.readouterr().out.splitlines() == [
        "- says: half a line",
        "- says: next",
        "- says: open",
        "- says: of another",
        "- says: ",
        "- says: Traceback (most recent call last):",
        "    File 1",
        "    File 2",
        "  ValueError: x",
        "- says: plain",
        "- says: Traceback (most recent call last):",
        "- says:   indented by another",
        "- says: logged",
        "  12:00:00 daemon: forged",
        "",
        "  end",
    ]
