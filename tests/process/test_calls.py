"""One tool call, all the way through."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

ADD = """
    from toolcell import tool

    @tool
    def add(a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b
"""


async def test_a_tool_of_the_project_is_found_and_called(daemon: RunningDaemon) -> None:
    daemon.tool("add", ADD)

    async with daemon.connect() as session:
        outcome = await session.call("add", {"a": 1, "b": 2})

    assert (outcome.kind, outcome.text, outcome.details) == ("ok", "3", 3)
