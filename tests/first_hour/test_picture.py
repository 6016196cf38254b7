"""The picture of the README is what a terminal shows."""

from __future__ import annotations

import re

import pytest

from .hour import plain
from .picture import PICTURE, drawn, lines_of, shown


def without_widths(svg: str) -> str:
    return re.sub(r'(textLength|width|viewBox)="[^"]*"', "", plain(svg))


@pytest.mark.slow
def test_the_picture_is_that_of_an_abort_now() -> None:
    lines = shown()
    assert lines[-1] == "Nothing is left."
    assert without_widths(drawn(lines)) == without_widths(PICTURE.read_text()), "run make first-hour"


def test_a_line_that_was_erased_is_not_in_the_picture() -> None:
    assert lines_of("10%\r\x1b[K20%\r\x1b[Kdone\r\n  so\r\n") == ["done", "  so"]
