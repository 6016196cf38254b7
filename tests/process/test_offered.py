"""What is offered is what may be called: a tool that is switched off or denied is in no list, and its call is refused."""

from __future__ import annotations

import asyncio

import pytest
from tests.daemons import RunningDaemon

from toolcell.adapters.base import AgentAdapter
from toolcell.client import Catalog, Limits, Outcome, Refused, Session, ToolInfo
from toolcell.client._transport.operator import Operator
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

TOOLS = """
from toolcell import tool

@tool(name="lint")
def lint() -> str:
    return "linted"

@tool(name="secret_drop")
def drop() -> str:
    return "dropped"
"""
OFF = "[tool.lint]\nenabled = false\n"


class Names(AgentAdapter[str, Outcome]):
    """An agent whose tools are their names."""

    agent = "names"
    limits = Limits()

    def tool(self, info: ToolInfo) -> str:
        return info.name

    def result(self, outcome: Outcome) -> Outcome:
        return outcome


async def listing(daemon: RunningDaemon, operator: Operator) -> pb.ListToolsResponse:
    request = pb.ListToolsRequest(directory=str(daemon.project))
    return await operator.ask(operator.tools.ListTools, request)


async def refusal(session: Session, tool: str) -> str | None:
    outcome = await session.call(tool)
    assert outcome.kind == "refused", outcome
    return outcome.cause


async def test_a_tool_that_is_switched_off_is_in_no_list_and_its_call_is_refused(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("all", TOOLS)
    daemon.configure(OFF)
    async with daemon.connect() as session, daemon.operate() as operator:
        assert list(session.catalog.tools) == ["secret_drop"]
        assert await refusal(session, "lint") == "disabled"
        listed = await listing(daemon, operator)
        assert [tool.name for tool in listed.catalog.tools] == ["secret_drop"]
        assert "lint (local)" not in listed.text
        request = pb.GetToolRequest(directory=str(daemon.project), name="lint")
        with pytest.raises(Refused, match=r"toolcell config set tool\.lint\.enabled true"):
            await operator.ask(operator.tools.GetTool, request)


async def test_an_operator_sees_that_a_tool_is_switched_off_and_an_agent_does_not(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("all", TOOLS)
    daemon.configure(OFF)
    async with daemon.connect() as session, daemon.operate() as operator:
        listed = await listing(daemon, operator)
        assert [(one.tool, one.reason) for one in listed.catalog.problems] == [("lint", "disabled")]
        assert session.catalog.problems == ()


async def test_a_reload_switches_a_tool_off_and_on_in_a_session_that_is_open(daemon: RunningDaemon) -> None:
    daemon.tool("all", TOOLS)
    changed = asyncio.Event()

    def on_catalog(catalog: Catalog) -> None:
        changed.set()

    async with daemon.connect(on_catalog=on_catalog) as session:
        assert set(session.catalog.tools) == {"lint", "secret_drop"}
        before = daemon.config.read_text()
        await asyncio.to_thread(daemon.configure, OFF)
        await asyncio.wait_for(changed.wait(), 60)
        assert set(session.catalog.tools) == {"secret_drop"}
        changed.clear()
        daemon.config.write_text(before)
        await asyncio.to_thread(daemon.reload)
        await asyncio.wait_for(changed.wait(), 60)
        assert set(session.catalog.tools) == {"lint", "secret_drop"}
        assert (await session.call("lint")).text == "linted"


@pytest.mark.parametrize(
    ("patterns", "offered"),
    [
        ({"allow": ["lint"]}, {"lint"}),
        ({"deny": ["secret_*"]}, {"lint"}),
        ({"allow": ["nothing"]}, set[str]()),
    ],
)
async def test_a_denied_tool_is_in_no_catalog_of_the_session(
    daemon: RunningDaemon, patterns: dict[str, list[str]], offered: set[str]
) -> None:
    daemon.tool("all", TOOLS)
    async with daemon.connect(**patterns) as session:
        assert set(session.catalog.tools) == offered
        assert await refusal(session, "secret_drop") == "not_allowed"
        await session.reload()
        assert set(session.catalog.tools) == offered


async def test_each_session_has_its_own_list_of_one_directory(daemon: RunningDaemon) -> None:
    daemon.tool("all", TOOLS)
    async with daemon.connect(allow=["lint"]) as one, daemon.connect(allow=["secret_*"]) as other:
        assert (list(one.catalog.tools), list(other.catalog.tools)) == (["lint"], ["secret_drop"])


async def test_a_refusal_does_not_name_the_tools_that_are_not_offered(daemon: RunningDaemon) -> None:
    daemon.tool("all", TOOLS)
    async with daemon.connect(deny=["secret_*"]) as session:
        outcome = await session.call("secret_dropp")
        assert outcome.cause == "unknown_tool"
        assert "it sees lint." in outcome.message


async def test_a_refusal_names_of_many_tools_those_with_a_like_name(daemon: RunningDaemon) -> None:
    names = ["lint", "deploy", "orders", "weather", "rename", "publish"]
    daemon.tool(
        "many",
        "from toolcell import tool\n"
        + "".join(f"@tool(name={name!r})\ndef f_{name}() -> None: ...\n" for name in names),
    )
    async with daemon.connect() as session:
        near, far = await session.call("deplay"), await session.call("zzz")
    assert "it sees 6 others, the nearest deploy." in near.message
    assert "it sees 6 others." in far.message


async def test_an_adapter_offers_what_the_session_may_call(daemon: RunningDaemon) -> None:
    daemon.tool("all", TOOLS)
    async with Names.connect(
        daemon.socket, directory=daemon.project, daemon="running", deny=["secret_*"]
    ) as adapter:
        assert adapter.tools() == ["lint", "toolcell_read_output"]
        assert (await adapter.call("secret_drop", {})).cause == "not_allowed"
