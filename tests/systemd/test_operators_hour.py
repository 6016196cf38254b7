"""The operator's first hour with an installed wheel is as its page says; it runs as root of a second systemd."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.first_hour.operators import plain, walk
from tests.wheels import ROOT

PAGE = ROOT / "docs" / "operators-hour.md"
WHEELS = os.environ.get("GUEST_WHEELS", "")


@pytest.mark.timeout(600)
@pytest.mark.skipif(
    "GUEST_MACHINE" not in os.environ, reason="not the root of a second systemd: make test-systemd"
)
def test_every_step_of_an_operator_works_and_the_page_is_what_it_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", WHEELS), ("NO_CACHE_DIR", "1")):
        monkeypatch.setenv(f"PIP_{name}", value)
    (wheel,) = Path(WHEELS).glob("toolcell-*.whl")
    page = walk(wheel)
    with capsys.disabled():
        print(f"\n{page}")  # what `make operators-hour` takes
    assert plain(page) == plain(PAGE.read_text()), "run make operators-hour"


def test_only_what_is_another_in_each_run_may_differ() -> None:
    assert plain("c-0123456789abcdef took 12 ms at 2026-11-27 15:00:01") == plain(
        "c-fedcba9876543210 took 1.5 s at 2027-01-01 00:00:00"
    )
    assert plain("2 tools") != plain("3 tools")
