"""A client or a tool that causes a line of the daemon's log with everything it does fills neither the log nor a disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.daemons import RunningDaemon
from tests.process.test_bad_requests import attached
from tests.process.wire import dialled

from toolcelld.event_log import KIND_LINES_MAX

pytestmark = pytest.mark.anyio

FAILS = """
from toolcell import tool

def on_session(event):
    raise ValueError("no")

@tool
def works() -> str:
    return "works"
"""


@pytest.mark.slow
async def test_sessions_whose_handlers_fail_write_a_bounded_number_of_lines(
    make_daemon: Callable[[], RunningDaemon],
) -> None:
    daemon = (
        make_daemon()
    )  # of its own: what comes next may look for lines of this kind, which wait for a minute now
    daemon.start()
    daemon.tool("works", FAILS)
    before = daemon.log.read_text().count("on_session")
    async with dialled(daemon) as wire:
        for _ in range(KIND_LINES_MAX + 15):
            async with attached(wire, daemon):
                pass
    written = daemon.log.read_text().count("on_session") - before
    assert 0 < written <= KIND_LINES_MAX, written
