"""An MCP server of the SDK that speaks the stateless protocol alone, through a real daemon."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import servers
from tests.daemons import RunningDaemon

from toolcell.client import Call

pytestmark = pytest.mark.anyio


async def test_its_tools_and_resources_are_used_and_questions_are_those_of_their_calls(
    daemon: RunningDaemon,
) -> None:
    shutil.copy(Path(servers.__file__).with_name("stateless.py"), daemon.project)
    command = json.dumps([sys.executable, "${project}/stateless.py"])
    daemon.config.write_text(f"[source.s]\nmcp = {command}\n[daemon]\nload_timeout = '60s'\n")
    daemon.reload()
    asked: dict[str, Call] = {}
    both = asyncio.Event()

    async def answer(call: Call, **requests: Any) -> dict[str, Any]:
        asked[call.id] = call
        if len(asked) == 2:
            both.set()
        await (
            both.wait()
        )  # so that two calls are open, of which a server that was greeted could not say which asks
        return {name: {"action": "accept", "content": {"name": call.id}} for name in requests}

    async with daemon.connect(services={"mcp.input": answer}) as session:
        await session.described(60)
        assert sorted(session.catalog.tools) == ["s_ask", "s_echo"]
        assert [offer.key for offer in await session.offers()] == ["note://one"]
        outcomes = await asyncio.gather(*(session.call("s_ask", call_id=name) for name in ("ada", "bob")))
        assert [outcome.ok for outcome in outcomes] == [True, True], outcomes
        assert "ada" in outcomes[0].text
        assert "bob" in outcomes[1].text
        assert (await session.call("s_echo", {"text": "a"})).text == "a"
        read = await session.call("s-mcp", {"method": "resources/read", "params": {"uri": "note://one"}})
        assert read.text == "noted"
