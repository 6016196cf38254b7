"""What a tool prints belongs to the call in which it was printed, also where a worker serves several sessions."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Kind, Log, Outcome, Session

pytestmark = pytest.mark.anyio

TALKS = """
import os, sys
from toolcell import ToolContext, tool

print("SECRET of loading", file=sys.stderr)

class Talks:
    def __del__(self) -> None:
        print("SECRET of a destructor", file=sys.stderr)

@tool
def talk(how: str, context: ToolContext) -> str:
    if how == "prints":
        print("SECRET of a call", file=sys.stderr)
    elif how == "destructor":
        context.talks = Talks()
    elif how == "dies":
        print("my last words", file=sys.stderr)
        os._exit(3)
    return how
"""


async def printed(session: Session, how: str) -> tuple[str, Outcome]:
    """Call the tool; what it printed, and how it ended."""
    call = session.call("talk", {"how": how})
    text = "".join([event.text async for event in call if isinstance(event, Log)])
    return text, await call


@pytest.mark.slow
@pytest.mark.parametrize("how", ["prints", "destructor", "returns"])
async def test_a_crash_shows_nothing_that_was_printed_before_its_call(
    daemon: RunningDaemon, how: str
) -> None:
    daemon.tool("talk", TALKS)
    async with daemon.connect() as first, daemon.connect() as second:
        _, before = await printed(first, how)
        text, crashed = await printed(second, "dies")
    assert before.kind is Kind.ok, before
    assert (crashed.kind, crashed.cause) == (Kind.crashed, "exit 3")
    assert crashed.facts.worker_id == before.facts.worker_id
    assert text == "my last words\n"
    assert "my last words" in crashed.message
    assert "SECRET" not in repr(crashed.to_dict())


async def test_what_a_destructor_prints_belongs_to_the_call_that_made_the_object(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("talk", TALKS)
    async with daemon.connect() as session:
        text, _ = await printed(session, "destructor")
    assert text == "SECRET of a destructor\n"
