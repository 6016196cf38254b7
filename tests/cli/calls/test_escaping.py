"""Text of tools, files and agents cannot control the terminal that a command prints it on."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from tests.cli.conftest import Project

from toolcell._printable import json_text, printable

HOSTILE = (
    "\x1b[2J\x1b]0;title\x07\x1b]8;;http://evil/\x1b\\link\x1b]52;c;ZXZpbA==\x07"  # clear, title, link, clipboard
    "\x9b31m\x9d0;t\x9c\rforged\b\x7f\u202eesrever\u2066\u2069\u200e\u061c\u2028\ufeff\U000e0041"
)
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u061c\u2028-\u202e\u2066-\u2069\ufeff\U000e0041]"
)

SHAPELESS = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
"""Letters and marks that are blank: fillers of Hangul, vowels of Khmer, the empty pattern of Braille, and a joiner."""

TOOL = f"""
import logging
import sys

from toolcell import ToolContext, tool

HOSTILE = {HOSTILE!a}


@tool(description="Described by " + HOSTILE)
def says(context: ToolContext, word: str = HOSTILE, *, fails: bool = False, asks: bool = False) -> str:
    print("printed " + HOSTILE)
    print("complained " + HOSTILE, file=sys.stderr)
    context.log.warning("logged " + HOSTILE)
    if asks:
        context.wait(context.ask("asked " + HOSTILE, patterns=["pattern " + HOSTILE]))
    if fails:
        raise ValueError("raised " + HOSTILE)
    return "returned\\tthis\\n" + HOSTILE
"""

OWN = re.compile(r"\x1b\[[\d;]*m|\r\x1b\[K|\r\n")
"""What the command itself sends to a terminal: colours, the line of progress, ends of lines."""


@pytest.fixture
def here(daemon: Project) -> Project:
    daemon.tool("says", TOOL)
    daemon.tool("broken", f"raise RuntimeError({HOSTILE!a})")
    (daemon.tools / f"odd{HOSTILE.replace('/', '')}\nname.py").write_text("1 / 0")
    return daemon


def shown(here: Project, *words: str) -> None:
    """Run a command on a terminal, which must show something and nothing that controls it."""
    with here.screen(*words, forked=True) as screen:
        screen.end()
    assert screen.text
    assert forbidden(screen.text) == [], words


def forbidden(text: str) -> list[str]:
    return FORBIDDEN.findall(OWN.sub("\n", text))


@pytest.mark.slow
def test_calls_pass_no_control_characters_of_others_to_a_terminal(here: Project) -> None:
    shown(here, "call", "says")
    shown(here, "call", "says", "--json")
    shown(here, "call", "says", "--events")
    shown(here, "call", "says", "fails:=true")
    shown(here, "call", "says", "asks:=true", "--yes")
    shown(here, "call", "broken")


@pytest.mark.slow
def test_lists_of_tools_pass_no_control_characters_of_others_to_a_terminal(here: Project) -> None:
    for words in (("tools",), ("tools", "says"), ("check",), ("trust", "--show")):
        shown(here, *words)
        shown(here, *words, "--json")
    shown(here, "reload")


@pytest.mark.slow
def test_records_of_calls_pass_no_control_characters_of_others_to_a_terminal(here: Project) -> None:
    here.run_bytes("call", "says")
    here.run_bytes("call", "says", "fails:=true")
    for words in (("logs",), ("calls",), ("sessions",), ("ps",)):
        shown(here, *words)
        shown(here, *words, "--json")


@pytest.mark.slow
def test_the_story_of_a_call_has_no_control_characters(here: Project) -> None:
    here.run_bytes("call", "says", "fails:=true")
    call, *_ = (call for call in here.run("calls", "--json").json("calls")["calls"] if call["tool"] == "says")
    for words in (("calls", call["call_id"]), ("calls", call["call_id"], "--json")):
        with here.screen(*words, forked=True) as screen:
            assert screen.end() == 0
        assert "raised" in screen.text
        assert forbidden(screen.text) == []


@pytest.mark.slow
def test_a_question_has_no_control_characters(here: Project) -> None:
    with here.screen("call", "says", "asks:=true") as screen:
        screen.until("[y]es, [N]o, [a]lways? ")
        screen.type("y\n")
        assert screen.end() == 0
    assert "asked" in screen.text
    assert forbidden(screen.text) == []


@pytest.mark.slow
def test_an_output_that_was_cut_has_no_control_characters_on_a_terminal_and_is_exact_in_a_pipe(
    here: Project,
) -> None:
    here.tool(
        "long",
        f"""
        from toolcell import tool

        @tool
        def long() -> str:
            return ({HOSTILE!a} + "\\n") * 100_000
        """,
    )
    outcome = json.loads(here.run("call", "long", "--json").out)
    words = ("output", outcome["output"]["id"], "--lines", "1:2")
    with here.screen(*words) as screen:
        assert screen.end() == 0
    assert "forged" in screen.text
    assert forbidden(screen.text) == []
    assert here.run_bytes(*words).startswith(HOSTILE.encode() + b"\n")


@pytest.mark.slow
def test_a_pipe_gets_the_result_unchanged_and_json_escaped_but_equal(here: Project) -> None:
    assert here.run_bytes("call", "says", "--quiet").decode() == f"returned\tthis\n{HOSTILE}\n"
    printed = here.run_bytes("call", "says", "--quiet", "--json").decode()
    assert FORBIDDEN.findall(printed) == []
    assert json.loads(printed)["content"][0]["text"] == f"returned\tthis\n{HOSTILE}"


@pytest.mark.slow
def test_tabs_and_lines_of_a_result_stay_on_a_terminal(here: Project) -> None:
    with here.screen("call", "says", "--quiet") as screen:
        assert screen.end() == 0
    assert screen.text.startswith("returned\tthis\r\n\\x1b[2J\\x1b]0;title\\x07")


def test_every_character_that_controls_or_cannot_be_seen_is_escaped() -> None:
    visible = {
        *range(0x600, 0x606),
        0x6DD,
        0x70F,
        0x890,
        0x891,
        0x8E2,
        0x110BD,
        0x110CD,
    }  # signs with a shape
    kept = {0x0A, 0x09, 0x200C, 0x200D, *visible, *range(0x13430, 0x13440)}
    for number in range(0x110000):
        letter = chr(number)
        expected = number not in SHAPELESS and (
            unicodedata.category(letter) not in ("Cc", "Cf", "Zl", "Zp", "Cs") or number in kept
        )
        if unicodedata.category(letter) == "Cn":
            continue  # later versions of Unicode decide
        assert (printable(letter) == letter) is expected, hex(number)


def test_text_is_escaped_as_python_writes_it() -> None:
    assert (
        printable("a\r\nb\n\tc\rd\x1b\x9b\u202e\U000e0041") == "a\r\nb\n\tc\\rd\\x1b\\x9b\\u202e\\U000e0041"
    )
    assert printable("a\nb\tc\r\n", lines=False) == "a\\nb\\tc\\r\\n"
    assert json_text({"a": "\x1b\x7f\x9b\u202e\U000e0041\nä"}) == (
        '{"a": "\\u001b\\u007f\\u009b\\u202e\\udb40\\udc41\\nä"}'
    )
