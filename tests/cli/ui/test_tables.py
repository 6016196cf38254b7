"""Tables and messages on terminals of every width: nothing is cut, ids stay whole, and colours only where they are wanted."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.cli._ui.prose import filled, fitted, print_prose, width_of, wrapped
from toolcell.cli._ui.tables import print_facts, print_table

ESCAPE = re.compile(r"\x1b\[(\d+)m")
CALLS = ("CALL", "TOOL", "STATE", "ACCEPTED", "RAN", "AGENT", "DIRECTORY")
DIRECTORY = "/home/adalovelace/src/a-directory-with-a-long-name/customer-orders-service"
ROWS = [
    ("c-5d72704a1dd98db6", "word_count_slow_search_in_everything", "refused (needs_grant)", "34 s ago", "-", "cli", DIRECTORY),
    ("c-4309ce4933d6fe89", "lint", "crashed (SIGABRT)", "2 min ago", "1.5 s", "claude/reviewer", "/tmp"),
    ("c-0000000000000000", "語" * 30, "ok", "now", "12 ms", "mcp", "/" + "x" * 130),
]  # fmt: skip


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return monkeypatch


def of_width(terminal: pytest.MonkeyPatch, columns: int) -> None:
    terminal.setattr(sys.stdout, "isatty", lambda: True)
    terminal.setenv("COLUMNS", str(columns))


def plain(text: str) -> str:
    return ESCAPE.sub("", text)


@pytest.mark.parametrize("columns", [1, 20, 40, 60, 80, 100, 130, 200, 400])
def test_no_column_of_a_table_loses_its_meaning(
    columns: int, terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_width(terminal, columns)
    print_table(CALLS, ROWS, right=("RAN",), wrap=("TOOL", "STATE", "DIRECTORY"))
    text = plain(capsys.readouterr().out)
    if columns >= 40:
        assert max(map(width_of, text.splitlines())) <= columns
    for row in ROWS:
        for heading, cell in zip(CALLS, row, strict=True):
            assert heading in text
            # Every letter is there, in its order; what is not in a column of its own is in one piece.
            if heading not in ("TOOL", "STATE", "DIRECTORY"):
                assert cell in text if columns >= 40 else set(cell) <= set(text)
            elif columns < 80 and cell != ROWS[2][1]:
                assert "".join(cell.split()) in "".join(text.split())
    assert text.count("語") == 30
    assert text.count("x") >= 130
    assert "…" not in text


def test_where_a_table_has_no_room_each_row_is_a_list(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(columns: int) -> list[str]:
        of_width(terminal, columns)
        print_table(
            ("ID", "STATE", "FILE"), [("c-1", "ok", "/a/b.py"), ("c-2", "idle", "/c.py")], wrap=("FILE",)
        )
        return plain(capsys.readouterr().out).splitlines()

    assert shown(80) == ["ID   STATE  FILE", "c-1  ok     /a/b.py", "c-2  idle   /c.py"]
    as_lists = ["ID     c-1", "STATE  ok", "FILE   /a/b.py", "", "ID     c-2", "STATE  idle", "FILE   /c.py"]
    assert shown(16) == shown(9) == as_lists


def test_colours_are_red_green_and_bold_and_only_where_they_are_wanted(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def codes() -> set[str]:
        print_table(CALLS, ROWS, wrap=("TOOL", "STATE", "DIRECTORY"))
        return set(ESCAPE.findall(capsys.readouterr().out))

    of_width(terminal, 200)
    assert codes() == {"0", "1", "31", "32"}
    of_width(terminal, 60)
    assert codes() == {"0", "1", "31", "32"}
    terminal.setenv("NO_COLOR", "")  # says nothing: https://no-color.org
    assert codes()
    terminal.setenv("NO_COLOR", "1")
    assert not codes()
    terminal.delenv("NO_COLOR")
    terminal.setenv("TERM", "dumb")
    assert not codes()
    of_width(terminal, 200)
    print_table(CALLS, ROWS[:2], wrap=("TOOL", "STATE", "DIRECTORY"))
    assert len(capsys.readouterr().out.splitlines()) == 3
    terminal.setenv("TERM", "xterm")
    terminal.setattr(sys.stdout, "isatty", lambda: False)
    assert not codes()


def test_a_sentence_stands_in_place_of_a_table_without_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "N"), [], empty="There is none.")
    assert capsys.readouterr().out == "There is none.\n"
    print_table(("A", "N"), [("a", "1")], empty="There is none.")
    assert capsys.readouterr().out == "A  N\na  1\n"


def test_what_a_cell_says_controls_no_terminal(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns in (20, 200):
        of_width(terminal, columns)
        print_table(("A", "STATE"), [("\x1b[2Jred\x1b[31m", "ok\x07")], wrap=("A",))
        print_facts([("name", "\x1b[2Jvalue")])
        assert set(ESCAPE.findall(capsys.readouterr().out)) <= {"0", "1"}


@pytest.mark.parametrize(
    "cell",
    ["[red]a[/red]", "[link=https://a.example]b[/link]", "[/]", "\\[bold]", ":warning:", "x" * 10_000, "語" * 5_000, "[" * 10_000,
     "'a' 1.5 https://a.example /a/b.py True"],
    ids=lambda cell: cell[:12],
)  # fmt: skip
def test_what_a_cell_says_is_no_markup(
    cell: str, terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_width(terminal, 100)
    print_table(("ID", "FILE"), [("c-1", cell), (cell[:20], "c-2")], wrap=("FILE",))
    text = capsys.readouterr().out
    assert set(ESCAPE.findall(text)) <= {"0", "1"}
    assert "".join(cell.split()) in "".join(plain(text).split()).replace("c-1", "").replace("FILE", "")
    assert max(map(width_of, plain(text).splitlines())) <= 100


def test_rich_is_loaded_for_a_terminal_alone() -> None:
    code = """
import sys
from toolcell.cli._ui.tables import print_table
print_table(("A",), [("a",)])
assert not any(name.partition(".")[0] == "rich" for name in sys.modules)
sys.stdout.isatty = lambda: True
print_table(("A",), [("a",)])
assert "rich.table" in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={"TERM": "dumb"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "A\na\n" * 2)


def test_a_sentence_is_wrapped_and_a_command_stays_to_be_copied(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_width(terminal, 40)
    message = (
        f"It needs the network, and its project is not trusted.\n  To grant it: toolcell trust {DIRECTORY}"
    )
    assert fitted(message, sys.stdout).split("\n") == [
        "It needs the network, and its project",
        "  is not trusted.",
        "  To grant it:",
        f"    toolcell trust {DIRECTORY}",
    ]
    print_prose("Custom Tools:\n  lint (local) — Find what is not written as it should be.")
    assert capsys.readouterr().out.splitlines() == [
        "Custom Tools:",
        "  lint (local) — Find what is not",
        "    written as it should be.",
    ]
    terminal.setattr(sys.stdout, "isatty", lambda: False)
    assert fitted(message, sys.stdout) == message


@given(st.text(alphabet="ab /_語é", max_size=80), st.integers(2, 30))
def test_wrapped_lines_fit_and_have_every_letter(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(width_of(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


DESCRIPTION = """Count the words of a text, and how often
each of them occurs in it.

Punctuation is a part of a word:
a, b
- the case of letters counts, in all of the languages
- so do digits

    example = "stays where it is"
1. a text of more than a megabyte is better counted
   where it lies
Args:
語語語語語語語語語語語語語語語語語語
"""


def test_a_description_is_filled_and_its_lists_and_examples_stay(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_width(terminal, 32)
    print(filled(DESCRIPTION, "  ", sys.stdout))
    assert capsys.readouterr().out.splitlines() == [
        "  Count the words of a text, and",
        "  how often each of them occurs",
        "  in it.",
        "",
        "  Punctuation is a part of a",
        "  word:",
        "  a, b",
        "  - the case of letters counts,",
        "    in all of the languages",
        "  - so do digits",
        "",
        '      example = "stays where it',
        '      is"',
        "  1. a text of more than a",
        "     megabyte is better counted",
        "     where it lies",
        "  Args:",
        "  語語語語語語語語語語語語語語語",
        "  語語語",
    ]


def test_in_a_pipe_a_description_has_its_own_lines(terminal: pytest.MonkeyPatch) -> None:
    terminal.setattr(sys.stdout, "isatty", lambda: False)
    lines = [f"  {line}".rstrip() for line in DESCRIPTION.splitlines()]
    assert filled(DESCRIPTION, "  ", sys.stdout) == "\n".join(lines)


@pytest.mark.parametrize("columns", [1, 9, 60])
@given(text=st.text(max_size=200))
def test_no_letter_of_a_description_is_lost(columns: int, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        of_width(patch, columns)
        assert "".join(filled(text, "  ", sys.stdout).split()) == "".join(text.split())
