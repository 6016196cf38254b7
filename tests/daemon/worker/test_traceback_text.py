"""Tracebacks of tools in the log: without Toolcell's frames, and whole where there is no other."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import toolcell
import toolcelld
from toolcelld.worker.loading.traceback_text import TRACEBACK_CHARACTERS_MAX, traceback_text

OURS = f"{toolcelld.__path__[0]}/worker/main.py"
ALSO_OURS = f"{toolcell.__path__[0]}/_authoring/function.py"
PACK = f"{toolcell.__path__[0]}/_packs/git/git.py"
TOOL = "/home/user/project/.toolcell/tools/lint.py"


def raised_through(*files: str, error: BaseException, cause: BaseException | None = None) -> BaseException:
    """An exception that passed a function of each file, the outermost first."""

    def innermost() -> None:
        raise error from cause

    function: Callable[[], None] = innermost
    for file in reversed(files):
        scope: dict[str, Callable[[], None]] = {"inner": function}
        exec(compile("def outer():\n    inner()\n", file, "exec"), scope)  # to have frames of that file
        function = scope["outer"]
    try:
        function()
    except BaseException as caught:  # noqa: BLE001  # it is what was asked for
        return caught
    raise AssertionError


def test_frames_of_ours_are_left_out_and_all_others_stay() -> None:
    text = traceback_text(raised_through(OURS, ALSO_OURS, TOOL, ALSO_OURS, error=ValueError("why")))
    assert OURS not in text
    assert ALSO_OURS not in text
    assert f'File "{TOOL}", line 2, in outer' in text
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("ValueError: why\n")


def test_tools_that_ship_with_toolcell_keep_their_frames() -> None:
    assert f'File "{PACK}", line 2' in traceback_text(raised_through(OURS, PACK, error=ValueError()))


def test_causes_and_groups_lose_them_too() -> None:
    first = raised_through(OURS, TOOL, error=KeyError("first"))
    member = raised_through(OURS, TOOL, error=OSError("member"))
    group = raised_through(OURS, TOOL, error=BaseExceptionGroup("two", [first, member]), cause=first)
    text = traceback_text(group)
    assert OURS not in text
    assert text.count(TOOL) == 4
    assert "KeyError: 'first'" in text
    assert "OSError: member" in text


def test_a_bug_of_ours_keeps_its_frames() -> None:
    error = raised_through(OURS, ALSO_OURS, error=ValueError("ours"))
    while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename != OURS:
        error.__traceback__ = error.__traceback__.tb_next  # the test's own frame
    assert error.__traceback__ is not None
    (ours, also, _) = traceback.extract_tb(error.__traceback__)
    assert {ours.filename, also.filename} == {OURS, ALSO_OURS}
    innermost = error.__traceback__.tb_next
    assert innermost is not None
    innermost.tb_next = None
    text = traceback_text(error)
    assert OURS in text
    assert ALSO_OURS in text


def test_an_exception_without_a_traceback_is_its_last_line() -> None:
    assert traceback_text(ValueError("bare")) == "ValueError: bare\n"


def test_circles_and_long_chains_of_causes_end_and_the_text_is_bounded() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert "ValueError: first" in traceback_text(first)
    chain: BaseException = ValueError("innermost")
    for number in range(3000):
        outer = ValueError(f"{number} {'x' * 100}")
        outer.__context__ = chain
        chain = outer
    text = traceback_text(chain)
    assert len(text) == TRACEBACK_CHARACTERS_MAX
    assert text.endswith("x\n")
