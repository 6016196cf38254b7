"""How much of the daemon a warm call goes through: a count, which may fall and must not grow."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from tests.bench.doors import OURS, road
from tests.bench.report import GOALS


@pytest.mark.slow
def test_a_warm_call_enters_few_functions_in_few_modules() -> None:
    with tempfile.TemporaryDirectory(prefix="tb-", dir="/tmp") as directory:
        found = asyncio.run(road(Path(directory)))
    figures = found.figures()
    assert figures["entries"] <= GOALS["doors_entries"].bound, found
    assert figures["modules"] <= GOALS["doors_modules"].bound, found
    assert any(name == "Call.end" for module, name in found.steps if module.startswith(OURS)), found
