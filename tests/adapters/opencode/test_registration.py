"""The bridge as an MCP server of a real OpenCode, from `register` to its removal."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psutil
import pytest
from tests.adapters.openai import offered
from tests.adapters.opencode.serve import PASSWORD, OpenCode, until
from tests.adapters.script import Use
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import OpenCodeApi, OpenCodeError, Registration, register
from toolcell.client import Unavailable
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    """No plugin."""
    return {}


@asynccontextmanager
async def registered(kit: RunningDaemon, opencode: OpenCode, **options: Any) -> AsyncGenerator[Registration]:
    given: dict[str, Any] = {"directory": kit.project, "password": PASSWORD, "socket": kit.socket}
    given |= {"daemon": "running", **options}
    async with register(opencode.url, **given) as registration:
        yield registration


def bridges(opencode: OpenCode) -> list[psutil.Process]:
    """What OpenCode runs of ours."""
    found: list[psutil.Process] = []
    for child in psutil.Process(opencode.pid).children(recursive=True):
        with suppress(psutil.Error):  # it is just ending
            if "mcp" in child.cmdline():
                found.append(child)
    return found


async def status(opencode: OpenCode, name: str = "toolcell") -> str | None:
    async with OpenCodeApi.at(opencode.url, directory=opencode.directory, password=PASSWORD) as server:
        return (await server.mcp()).get(name, {}).get("status")


def process_of(kit: RunningDaemon) -> psutil.Process:
    """The process of the one call that runs."""
    answer = kit.ask(
        "Operator/ListWorkers", operator_pb2.ListWorkersRequest(), operator_pb2.ListWorkersResponse
    )
    (pid,) = (worker.pid for worker in answer.workers if worker.call_id)
    return psutil.Process(pid)


async def test_the_tools_are_there_while_it_is_registered_and_work(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    async with registered(kit, opencode) as registration, kit.connect() as session:
        assert registration.tools == len(session.catalog.tools)
        (bridge,) = bridges(opencode)
        async with opencode.stay() as stay:
            uses = [
                Use("toolcell_kit_echo", {"text": "hé\n«🦊»"}),
                Use("toolcell_kit_order", {"lines": [{"sku": "a"}], "side": "buy"}),
                Use("toolcell_kit_fails", {"why": "no paper"}),
            ]
            assert await stay.use(*uses) == ["hé\n«🦊»", "buy 1", "It did not work: no paper"]
            shown = offered(opencode.model.script.requests[0])
        assert {f"toolcell_{name}" for name in session.catalog.tools} <= shown.keys()
        schema = session.catalog.tools["kit_order"].input_schema
        assert shown["toolcell_kit_order"]["parameters"]["properties"] == schema["properties"]
    assert not bridge.is_running()
    assert await status(opencode) == "disabled"
    async with opencode.stay() as stay:
        await stay.use(Use("bash", {"command": "true", "description": "nothing"}))
        assert not [
            name for name in offered(opencode.model.script.requests[0]) if name.startswith("toolcell")
        ]


async def test_the_bridge_has_not_got_what_opencode_keeps_for_itself(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    async with registered(kit, opencode):
        (bridge,) = bridges(opencode)
        environment = bridge.environ()
        command = bridge.cmdline()
    assert command[-3:] == ["mcp", "-C", str(kit.project)]
    assert PASSWORD not in environment.values()
    assert environment["OPENCODE_SERVER_PASSWORD"] == environment["OPENCODE_CONFIG_CONTENT"] == ""
    assert environment["TOOLCELL_SOCKET"] == kit.socket


async def test_what_opencode_cancels_after_a_call_has_ended_stops_nothing(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    """It sends a cancellation for every call that has completed."""
    async with registered(kit, opencode), opencode.stay() as stay:
        for number in range(3):
            uses = [
                Use("toolcell_kit_echo", {"text": f"{number}"}),
                Use("toolcell_kit_steps", {"count": 30}),  # still runs when the other's cancellation comes
            ]
            assert await stay.use(*uses) == [f"{number}", "30 steps"]
        assert len(bridges(opencode)) == 1


@pytest.mark.parametrize("tool", ["kit_waits", "kit_deaf"])
async def test_an_abort_ends_the_tool(kit: RunningDaemon, opencode: OpenCode, tool: str) -> None:
    async with registered(kit, opencode), opencode.stay() as stay:
        async with stay.using(Use(f"toolcell_{tool}", {"name": f"mcp_{tool}"})):
            await until((kit.project / f"mcp_{tool}.there").exists)
            process = process_of(kit)
            await stay.abort()
        await until(lambda: not process.is_running())
        assert tool == "kit_deaf" or (kit.project / f"mcp_{tool}.stopped").exists()
    async with registered(kit, opencode), opencode.stay() as stay:
        assert await stay.use(Use("toolcell_kit_echo", {"text": "next"})) == ["next"]


async def test_a_long_output_is_not_cut_by_opencode(kit: RunningDaemon, opencode: OpenCode) -> None:
    uses = [Use("toolcell_kit_long", {"lines": 1_500}), Use("toolcell_kit_echo", {"text": "x\n" * 6_000})]
    async with registered(kit, opencode), opencode.stay() as stay:
        said = await stay.use(*uses)
        cut = [(await stay.part(use))["state"]["metadata"]["truncated"] for use in uses]
        ids = [re.findall(r'toolcell_read_output\(output_id="([^"]+)"', text) for text in said]
        (more,) = await stay.use(
            Use("toolcell_toolcell_read_output", {"output_id": ids[0][0], "start": 149_899})
        )
    assert cut == [False, False]
    assert all("[truncated: " in text for text in said)
    assert more.endswith("00001499 " + "x" * 90)


class Stopped(Exception):
    """Whatever may happen in the block."""


async def test_an_exception_takes_it_back(kit: RunningDaemon, opencode: OpenCode) -> None:
    found: list[psutil.Process] = []

    async def fail() -> None:
        async with registered(kit, opencode):
            found.extend(bridges(opencode))
            raise Stopped

    with pytest.raises(Stopped):
        await fail()
    assert [bridge.is_running() for bridge in found] == [False]
    assert await status(opencode) == "disabled"


async def test_a_cancellation_takes_it_back_and_waits_for_that(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    inside = asyncio.Event()

    async def stay() -> None:
        async with registered(kit, opencode):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stay())
    await inside.wait()
    (bridge,) = bridges(opencode)
    task.cancel()
    await asyncio.sleep(0)  # it has begun to take it back
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not bridge.is_running()
    assert await status(opencode) == "disabled"


async def test_a_cancellation_while_it_is_being_added_takes_it_back_too(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    async def stay() -> None:
        async with registered(kit, opencode):
            await asyncio.Event().wait()

    task = asyncio.create_task(stay())
    await until(lambda: bridges(opencode))  # OpenCode has started it, and does not know its tools yet
    (bridge,) = bridges(opencode)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not bridge.is_running()
    assert await status(opencode) == "disabled"


PROGRAM = """
import asyncio, os, signal, sys
from toolcell.adapters.opencode import register

async def main(url, directory, password, socket, number):
    async with register(url, directory=directory, password=password, socket=socket, daemon="running"):
        os.kill(os.getpid(), int(number))
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_the_end_of_the_program_takes_it_back_whatever_ends_it(
    kit: RunningDaemon, opencode: OpenCode, number: signal.Signals
) -> None:
    arguments = [opencode.url, str(kit.project), PASSWORD, kit.socket, str(int(number))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == -number

    async def taken_back() -> bool:  # OpenCode ends the bridge first, and changes the state a moment later
        return await status(opencode) == "disabled"

    await until(taken_back)
    assert bridges(opencode) == []


async def test_taking_it_back_twice_does_no_harm(kit: RunningDaemon, opencode: OpenCode) -> None:
    async with registered(kit, opencode, name="twice") as registration:
        await registration.unregister()
        assert await status(opencode, "twice") == "disabled"
        await registration.unregister()
    assert await status(opencode, "twice") == "disabled"


async def test_it_is_made_sure_of_before_a_session_is_resumed(kit: RunningDaemon, opencode: OpenCode) -> None:
    async with registered(kit, opencode) as registration:
        (first,) = bridges(opencode)
        await registration.ensure()
        assert bridges(opencode) == [first]  # there was nothing to do
        async with OpenCodeApi.at(opencode.url, directory=kit.project, password=PASSWORD) as server:
            await until(server.reload)
        await until(lambda: not first.is_running())
        path = kit.tool(
            "fresh", "from toolcell import tool\n\n@tool\ndef fresh() -> str:\n    return 'new'\n"
        )
        try:
            before = registration.tools
            assert await registration.ensure() == before + 1
            async with opencode.stay() as stay:
                assert await stay.use(Use("toolcell_fresh")) == ["new"]
        finally:
            path.unlink()
    assert bridges(opencode) == []


async def test_what_is_in_the_way_is_said(kit: RunningDaemon, opencode: OpenCode) -> None:
    with pytest.raises(OpenCodeError, match="wants its password"):
        async with registered(kit, opencode, password="another"):
            pass
    with pytest.raises(Unavailable, match="No daemon runs here"):
        async with registered(kit, opencode, socket=f"{kit.directory}/absent/daemon.sock"):
            pass
    with pytest.raises(OpenCodeError, match="No OpenCode answers at"):
        async with register("http://127.0.0.1:9", directory=kit.project, socket=kit.socket, daemon="running"):
            pass
    assert bridges(opencode) == []


async def test_a_command_that_does_not_run_is_said(
    kit: RunningDaemon, opencode: OpenCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.adapters.opencode.registration._command", lambda: ["/nowhere/toolcell"])
    with pytest.raises(OpenCodeError, match="could not connect to the MCP server broken"):
        async with registered(kit, opencode, name="broken"):
            pass
