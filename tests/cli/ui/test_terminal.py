"""`toolcell call` before a person: the line of progress, questions, ^C."""

from __future__ import annotations

import re

import pytest
from tests.cli.conftest import Project

SLOW = '''
import time

from toolcell import ToolContext, tool


@tool
def slow(context: ToolContext) -> str:
    """Be slow."""
    print("begins")
    context.progress(1, 4, "a quarter\\x1b[2J")
    time.sleep(1000)


@tool
def quick(context: ToolContext) -> str:
    """Be quick."""
    context.progress(1, 4, "a quarter")
    context.ask  # noqa: B018
    context.wait(context.ask("Go on?\\x1b[2J", patterns=["this", "that"], always=["all"]))
    return "done"
'''


@pytest.fixture
def here(daemon: Project) -> Project:
    daemon.tool("slow", SLOW)
    return daemon


def shown(text: str) -> list[str]:
    """What is left on the screen: lines that were rewritten show their last state."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [re.split(r"\r\x1b\[K", line)[-1] for line in lines if line]


@pytest.mark.slow
def test_progress_is_one_line_that_is_rewritten_and_an_abort_says_how_it_ended(here: Project) -> None:
    with here.screen("call", "slow") as screen:
        screen.until("begins")
        screen.until("slow: ━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  25% a quarter\ufffd[2J")
        screen.type("\x03")
        assert screen.end() == 130
    begins, interrupt, ended, so, remark = shown(screen.text)
    assert begins == "begins"
    assert interrupt == "^C slow: aborting (again to leave at once)"
    assert re.fullmatch(
        r"slow: aborted: by you after [\d.]+ m?s; it stopped by itself [\d.]+ m?s later, and so did .*",
        f"{ended} {so.strip()}",  # a terminal of 80 columns
    )
    assert remark == "  What it had done until then is not undone."


@pytest.mark.parametrize("typed", [True, False], ids=["a person", "input from elsewhere"])
def test_the_last_progress_of_many_is_shown(here: Project, typed: bool) -> None:
    here.tool(
        "hasty",
        """
        import time
        from toolcell import ToolContext, tool

        @tool
        def hasty(context: ToolContext) -> None:
            for done in range(1, 101):
                context.progress(done, 100)
            time.sleep(1000)
        """,
    )
    with here.screen("call", "hasty", typed=typed) as screen:
        screen.until(" 100%")
        screen.type("\x03")
        assert screen.end() == 130


@pytest.mark.slow
def test_a_second_interrupt_leaves_at_once_and_the_daemon_ends_the_call(here: Project) -> None:
    here.tool(
        "stubborn",
        '''
        import time
        from toolcell import ToolContext, tool

        @tool
        def stubborn(context: ToolContext) -> None:
            """Ignore every abort."""
            context.progress(1, 2)
            while True:
                try:
                    time.sleep(1000)
                except BaseException:
                    pass
        ''',
    )
    with here.screen("call", "stubborn") as screen:
        screen.until("50%")
        screen.type("\x03")
        screen.until("aborting (again to leave at once)")
        screen.type("\x03")
        assert screen.end() == 130
    assert "aborted: " not in screen.text
    listed = here.run("calls", "--json").json("calls")["calls"]
    (call,) = [call for call in listed if call["directory"] == str(here.directory)]
    assert call["state"] in ("aborting", "ended")


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "code", "last"), [("y\n", 0, "done"), ("a\n", 0, "done"), ("\n", 3, ""), ("no\n", 3, "")]
)
def test_a_question_is_asked_and_only_a_yes_is_a_yes(
    here: Project, answer: str, code: int, last: str
) -> None:
    with here.screen("call", "slow_quick") as screen:
        screen.until("[y]es, [N]o, [a]lways? ")
        assert "\x1b[2J" not in screen.text
        screen.type(answer)
        assert screen.end() == code
    lines = shown(screen.text)
    assert lines[:4] == ["slow_quick: Go on?\ufffd[2J", "  this", "  that", "  always: all"]
    assert lines[-1] == last or lines[-1].startswith("slow_quick: denied: ")


def test_an_open_question_can_be_aborted(here: Project) -> None:
    with here.screen("call", "slow_quick") as screen:
        screen.until("[a]lways? ")
        screen.type("\x03")
        screen.until("slow_quick: aborted: by you after ")
        assert screen.end() == 130


@pytest.mark.slow
def test_yes_is_never_asked_and_quiet_shows_no_progress(here: Project) -> None:
    with here.screen("call", "slow_quick", "--yes", "--quiet") as screen:
        assert screen.end() == 0
    assert screen.text == "done\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", [("call", "sluggish"), ("tools",), ("check",)], ids=" ".join)
def test_a_long_import_says_that_it_is_waited_for(here: Project, words: tuple[str, ...]) -> None:
    mark = here.tools / "_mark"
    here.tool(
        "sluggish",
        f'''
        import os, time
        from toolcell import tool

        while not os.path.exists({str(mark)!r}):
            time.sleep(0.01)

        @tool
        def sluggish() -> str:
            """Take long to load."""
            return "done"
        ''',
    )
    with here.screen(*words) as screen:
        screen.until("loading tools (1 s)")
        screen.until(" (2 s)")
        mark.touch()
        assert screen.end() == 0
    left = shown(screen.text)
    assert not [line for line in left if "loading" in line]
    assert "sluggish" in left[-1] or left[-1] == "done"
