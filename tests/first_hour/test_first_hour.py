"""The first hour with an installed wheel is as its page says."""

from __future__ import annotations

import pytest
from tests.wheels import ROOT

from .hour import plain, walk

PAGE = ROOT / "docs" / "first-hour.md"
MACHINE_SECONDS_MAX = 300
"""Of the hour; a minute here, most of it for packages. Then the test is ended."""


@pytest.mark.slow
@pytest.mark.timeout(MACHINE_SECONDS_MAX)
def test_every_step_works_and_the_page_is_what_it_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page, seconds = walk()
    with capsys.disabled():
        print(f"\nThe machine's part of the first hour: {seconds:.0f} s of {MACHINE_SECONDS_MAX} s.")
    assert plain(page) == plain(PAGE.read_text()), "run make first-hour"


def test_times_alone_may_differ() -> None:
    assert plain("stopped after 8 ms, of 1.0 s") == plain("stopped after 12.5 ms, of 3 s")
    assert plain("2 tools") != plain("3 tools")
