"""The examples of other libraries, unmodified: each file is described in a cell, and offers the tools of its author."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest
from tests.daemons import RunningDaemon
from tests.libraries.conftest import PLACE
from tests.libraries.examples import LOADED

pytestmark = pytest.mark.anyio

DESCRIBE_SECONDS: Final = 90
NO_EFFECT: Final = "of its library has no effect here"
"""A remark about an option; the tool works."""
FILES: Final = [(source, file) for source, files in LOADED.items() for file in files]


@pytest.mark.parametrize(("source", "file"), FILES)
async def test_an_example_offers_its_tools(with_libraries: RunningDaemon, source: str, file: str) -> None:
    place = with_libraries.directory / "tools" / Path(file).name
    try:
        shutil.copyfile(PLACE / source / file, place)
        with_libraries.reload()
        async with with_libraries.connect() as session:
            await session.described(DESCRIBE_SECONDS)
            found = [name for name, tool in session.catalog.tools.items() if tool.path == str(place)]
            problems = [str(problem) for problem in session.catalog.problems if NO_EFFECT not in str(problem)]
    finally:
        place.unlink(missing_ok=True)
    assert not problems
    assert sorted(found) == LOADED[source][file].split()
