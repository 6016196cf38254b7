"""Public tool files in TypeScript, unmodified: each becomes what typescript-files.md says, under Bun and under Node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.daemons import RunningDaemon, renewed
from tests.engines import ENGINES
from tests.libraries.public_tools import ORIGINS, PAGE, Origin, daemon_of, load, place_of, rows

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[int, RunningDaemon]]:
    """The column of an engine, and a daemon that has it alone."""
    with daemon_of(request.param) as daemon:
        yield sorted(ENGINES).index(request.param), daemon


@pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: f"{origin.name}:{origin.directory}")
async def test_public_files_become_what_the_page_says(
    engine: tuple[int, RunningDaemon], origin: Origin
) -> None:
    column, daemon = engine
    if (place := place_of(origin)) is None:
        pytest.skip(f"{origin.name} is not below $TOOLCELL_TOOL_FILES")
    said = rows(PAGE.read_text(encoding="utf-8"))[origin.name, origin.directory]
    with renewed(daemon):
        found = await load(daemon, origin, place)
    assert found == {file: pair[column] for file, pair in said.items()}
