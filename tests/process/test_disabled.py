"""A disabled tool: its running calls end, it is in no catalog, and new calls are refused until it is enabled."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Catalog, Kind, Refused, Session, Started
from toolcell.client._transport.operator import Operator
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.policy.decisions.disabled import DISABLED_MAX, REASON_LETTERS_MAX

pytestmark = pytest.mark.anyio

SECONDS_MAX = 20
TOOLS = """
import asyncio
from toolcell import tool

@tool
async def waits() -> None:
    await asyncio.sleep(600)

@tool
def hello() -> str:
    return "hello"
"""


async def disable(operator: Operator, tool: str, reason: str = "") -> op.DisableToolResponse:
    return await operator.ask(operator.operator.DisableTool, op.DisableToolRequest(tool=tool, reason=reason))


async def enable(operator: Operator, tool: str) -> None:
    await operator.ask(operator.operator.EnableTool, op.EnableToolRequest(tool=tool))


def restarted(daemon: RunningDaemon) -> None:
    daemon.stop()
    daemon.start()


async def until_offered(session: Session, news: asyncio.Event, *names: str) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while set(session.catalog.tools) != set(names):
            await news.wait()
            news.clear()


async def test_a_disabled_tool_stops_leaves_the_sessions_and_is_refused_until_it_is_enabled(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("t", TOOLS)
    news = asyncio.Event()

    def on_catalog(_: Catalog) -> None:
        news.set()

    async with daemon.connect(on_catalog=on_catalog) as session, daemon.operate() as operator:
        await until_offered(session, news, "t_waits", "t_hello")
        call = session.call("t_waits")
        async for event in call:
            if isinstance(event, Started):
                break
        answer = await disable(operator, "t_waits", "the site is down")
        assert list(answer.call_ids) == [call.id]
        assert not answer.ends_with_daemon
        outcome = await call
        assert (outcome.kind, outcome.cause) == (Kind.aborted, "operator")
        assert "by an operator, who has disabled t_waits: the site is down" in outcome.message
        await until_offered(session, news, "t_hello")

        refused = await session.call("t_waits")
        assert (refused.kind, refused.cause) == (Kind.refused, "disabled")
        assert "t_waits is disabled by an operator since 20" in refused.message
        assert ": the site is down\n  To enable it again: toolcell enable t_waits" in refused.message
        assert (await session.call("t_hello")).text == "hello"

        tools = await operator.ask(
            operator.tools.ListTools, pb.ListToolsRequest(directory=str(daemon.project))
        )
        assert [tool.name for tool in tools.catalog.tools] == ["t_hello"]
        (problem,) = tools.catalog.problems
        assert (problem.tool, problem.reason) == ("t_waits", "disabled")
        assert "toolcell enable t_waits" in problem.message
        request = op.ExplainRequest(directory=str(daemon.project), tool="t_waits")
        with pytest.raises(Refused, match="the site is down") as explained:
            await operator.ask(operator.operator.Explain, request)
        assert explained.value.code == "disabled"
        assert [tool.tool for tool in daemon.status().disabled] == ["t_waits"]
        found = (await operator.ask(operator.operator.Doctor, op.DoctorRequest())).findings
        assert [f.remedy for f in found if f.name == "tool t_waits"] == [
            "To enable it again: toolcell enable t_waits"
        ]

        await enable(operator, "t_waits")
        await until_offered(session, news, "t_waits", "t_hello")
        assert not daemon.status().disabled


@pytest.mark.slow
async def test_a_tool_stays_disabled_over_restarts(make_daemon: Callable[..., RunningDaemon]) -> None:
    daemon = make_daemon()
    daemon.tool("t", TOOLS)
    daemon.start()
    async with daemon.connect(), daemon.operate() as operator:
        await disable(operator, "t_hello", "why\x1b[31m\nnot" + "x" * 1000)
    for restart in (daemon.reload, lambda: restarted(daemon)):
        restart()
        (disabled,) = daemon.status().disabled
        assert disabled.reason.startswith("why\\x1b[31m\\nnotx")
        assert len(disabled.reason) <= REASON_LETTERS_MAX + len("\\x1b\\n")
        async with daemon.connect() as session:
            assert (await session.call("t_hello")).cause == "disabled"
            assert set(session.catalog.tools) == {"t_waits"}
    async with daemon.operate() as operator:
        await enable(operator, "t_hello")
    daemon.stop()
    daemon.start()
    async with daemon.connect() as session:
        assert (await session.call("t_hello")).text == "hello"


async def test_only_tools_that_there_are_can_be_disabled(daemon: RunningDaemon) -> None:
    daemon.tool("u", TOOLS)  # no call of it is remembered
    async with daemon.operate() as operator:
        for name in (
            "u_hello",
            "",
            "no\x1b[31m",
            "n" * 10_000,
            "\0",
            "../t",
            "t_\udcff".encode(errors="replace").decode(),
        ):
            with pytest.raises(Refused) as refused:
                await disable(operator, name)
            assert refused.value.code == "unknown_tool", name
            assert len(str(refused.value)) < 1000
        request = op.DisableToolRequest(tool="u_hello", directory=str(daemon.project))
        await operator.ask(operator.operator.DisableTool, request)
        again = await disable(operator, "u_hello", "another reason")
        assert [tool.reason for tool in daemon.status().disabled] == ["another reason"]
        assert again.disabled.reason == "another reason"
        for name in ("u_waits", "", "\0"):
            with pytest.raises(Refused, match="is not disabled; u_hello is") as refused:
                await enable(operator, name)
            assert refused.value.code == "unknown_tool"
        await enable(operator, "u_hello")


@pytest.mark.slow
async def test_the_number_of_disabled_tools_is_bounded(make_daemon: Callable[..., RunningDaemon]) -> None:
    daemon = make_daemon()
    daemon.tool("t", TOOLS)
    daemon.start()
    daemon.stop()
    with contextlib.closing(sqlite3.connect(daemon.state / "toolcell.sqlite")) as database, database:
        rows = [(f"tool{number}", "r" * REASON_LETTERS_MAX, 1e9) for number in range(DISABLED_MAX)]
        database.executemany("INSERT INTO disabled VALUES (?, ?, ?)", rows)
    daemon.start()
    assert len(daemon.status().disabled) == DISABLED_MAX
    async with daemon.connect(), daemon.operate() as operator:
        with pytest.raises(Refused) as refused:
            await disable(operator, "t_hello")
        assert refused.value.code == "too_large"
        await enable(operator, "tool7")
        await disable(operator, "t_hello")
        await enable(operator, "t_hello")


@pytest.mark.slow
async def test_a_decision_that_cannot_be_written_down_says_so(
    make_daemon: Callable[..., RunningDaemon],
) -> None:
    daemon = make_daemon()
    daemon.tool("t", TOOLS)
    daemon.state.mkdir(mode=0o700, exist_ok=True)
    (daemon.state / "toolcell.sqlite").mkdir()
    daemon.start()
    async with daemon.connect() as session, daemon.operate() as operator:
        assert (await disable(operator, "t_hello")).ends_with_daemon
        assert (await session.call("t_hello")).cause == "disabled"
        await enable(operator, "t_hello")
        assert (await session.call("t_hello")).text == "hello"
