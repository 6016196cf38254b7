"""What operators do to a daemon that runs: no worker for a file, no new calls, another level of the log."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2
from tests.daemons import RunningDaemon
from tests.process.wire import dialled

from toolcell.client import Call, Kind, Refused, Started, Unavailable
from toolcell.client._transport.operator import Operator
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

SECONDS_MAX = 20
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
WAITS = """
import asyncio
from toolcell import tool

@tool
async def waits() -> None:
    await asyncio.sleep(600)

@tool
def hello() -> str:
    return "hello"
"""


async def begun(call: Call) -> Call:
    async for event in call:
        if isinstance(event, Started):
            return call
    raise AssertionError("it has ended")


@pytest.mark.slow
async def test_a_quarantined_file_has_no_new_calls_and_what_runs_of_it_goes_on(daemon: RunningDaemon) -> None:
    path, before = str(daemon.tool("q", WAITS)), daemon.status().quarantined
    async with daemon.connect() as session, daemon.operate() as operator:
        running = await begun(session.call("q_waits"))
        assert (await session.call("q_hello")).text == "hello"
        request = op.QuarantineToolRequest(tool="q_hello", reason="it fills\nthe disk")
        answer = await operator.ask(operator.operator.QuarantineTool, request)
        (held,) = answer.quarantined
        assert (held.path, held.by) == (path, "an operator has put it there: it fills\\nthe disk")
        refused = await session.call("q_hello")
        assert (refused.kind, refused.cause) == (Kind.refused, "quarantined")
        assert "an operator has put it there: it fills\\nthe disk" in refused.message
        assert "toolcell release q" in refused.message
        assert daemon.status().quarantined == before + 1
        tools = await operator.ask(
            operator.tools.ListTools, pb.ListToolsRequest(directory=str(daemon.project))
        )
        assert "it fills\\nthe disk" in tools.text
        listed = await operator.ask(operator.operator.ListCalls, op.ListCallsRequest())
        assert [call.call_id for call in listed.calls if call.state == "running"] == [running.id]
        await operator.ask(operator.operator.Release, op.ReleaseRequest(tool=path))
        assert (await session.call("q_hello")).text == "hello"
        assert daemon.status().quarantined == before
        running.abort()
        await running


@pytest.mark.slow
async def test_a_file_in_quarantine_comes_back_with_new_code_or_by_its_path(daemon: RunningDaemon) -> None:
    path = daemon.tool("r", WAITS)
    async with daemon.connect() as session, daemon.operate() as operator:
        request = op.QuarantineToolRequest(tool=str(path), directory=str(daemon.project))
        await operator.ask(operator.operator.QuarantineTool, request)
        assert (await session.call("r_hello")).cause == "quarantined"
        path.write_text(WAITS.replace('return "hello"', 'return "mended"'))
        await session.reload()
        assert (await session.call("r_hello")).text == "mended"
        await operator.ask(operator.operator.Release, op.ReleaseRequest(tool=str(path)))


async def test_a_file_is_released_by_a_name_that_no_session_and_no_call_knows(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    tools = tmp_path / "elsewhere" / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "far.py").write_text(WAITS)
    async with daemon.operate() as operator:
        request = op.QuarantineToolRequest(tool="far_hello", directory=str(tmp_path / "elsewhere"))
        await operator.ask(operator.operator.QuarantineTool, request)
        for name in ("", "hello", "far_", "far_hell", "\0", "far_hello\n", "x" * 100_000):
            with pytest.raises(Refused, match=r"is not in quarantine; .*\bfar\b") as caught:
                await operator.ask(operator.operator.Release, op.ReleaseRequest(tool=name))
            assert len(caught.value.message) < 1000
        answer = await operator.ask(
            operator.operator.Release, op.ReleaseRequest(tool="far_hello", reason="mended\nnow")
        )
        assert [each.path for each in answer.released] == [str(tools / "far.py")]
        assert await audit(operator, "release") == (f"{tools}/far.py: mended\\nnow", "far")


async def audit(operator: Operator, action: str) -> tuple[str, str]:
    """The last decision of a kind, and its tool; the records are written in batches."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            request = op.ListEventsRequest(type=f"decision.{action}", limit=1)
            found = (await operator.ask(operator.operator.ListEvents, request)).events
            if found:
                return found[0].message, found[0].tool
            await asyncio.sleep(0.02)


async def test_a_drained_daemon_refuses_new_calls_ends_running_ones_and_serves_again(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("d", WAITS)
    async with daemon.connect() as session, daemon.operate() as operator, dialled(daemon) as wire:
        running = await begun(session.call("d_waits"))
        health = wire.health.Watch(health_pb2.HealthCheckRequest(), metadata=wire.agent)
        assert (await health.read()).status == SERVING
        draining = operator.watch(operator.operator.Drain, op.DrainRequest(reason="the host restarts"))
        first = await anext(draining)
        assert (first.calls, first.draining) == (1, True)
        assert (await health.read()).status == NOT_SERVING
        refused = await session.call("d_hello")
        assert (refused.kind, refused.cause) == (Kind.refused, "draining")
        assert "an operator drains the daemon" in refused.message
        assert ": the host restarts\n  To have it accept calls again: toolcell drain --off" in refused.message
        with pytest.raises(Unavailable, match="an operator drains the daemon"):
            async with daemon.connect():
                pass
        status = daemon.status()
        assert (status.state, status.drained, status.calls) == ("draining", "the host restarts", 1)
        running.abort()
        await running
        assert [(each.calls, each.draining) async for each in draining] == [(0, True)]
        assert daemon.status().state == "draining", "the end of the waiting is not the end of the drain"

        off = [each async for each in operator.watch(operator.operator.Drain, op.DrainRequest(off=True))]
        assert [(each.calls, each.draining) for each in off] == [(0, False)]
        assert (await health.read()).status == SERVING
        health.cancel()
        assert (await session.call("d_hello")).text == "hello"
        status = daemon.status()
        assert (status.state, status.HasField("drained")) == ("serving", False)


@pytest.mark.slow
async def test_who_waits_for_a_drain_is_told_that_it_was_ended(daemon: RunningDaemon) -> None:
    daemon.tool("d", WAITS)
    async with daemon.connect() as session, daemon.operate() as operator:
        running = await begun(session.call("d_waits"))
        draining = operator.watch(operator.operator.Drain, op.DrainRequest())
        assert (await anext(draining)).draining
        (answer,) = [
            each async for each in operator.watch(operator.operator.Drain, op.DrainRequest(off=True))
        ]
        assert (answer.calls, answer.draining) == (1, False)
        async with asyncio.timeout(SECONDS_MAX):
            assert [each.draining async for each in draining] == [False]
        running.abort()
        await running


@pytest.mark.slow
async def test_a_drained_daemon_stops(daemon: RunningDaemon) -> None:
    async with daemon.operate() as operator:
        async for _ in operator.watch(operator.operator.Drain, op.DrainRequest()):
            pass
    assert daemon.stop() == 0
    daemon.start()
    assert daemon.status().state == "serving"


@pytest.mark.slow
async def test_the_level_of_the_log_is_another_for_a_time(daemon: RunningDaemon) -> None:
    daemon.tool("l", WAITS)
    marked = len(daemon.log.read_text())
    async with daemon.operate() as operator:

        async def level(name: str, seconds: float) -> None:
            request = op.SetLogLevelRequest(level=name, seconds=seconds)
            await operator.ask(operator.operator.SetLogLevel, request)

        assert (daemon.status().log_level, daemon.status().HasField("log_level_until")) == ("info", False)
        await level("debug", 600)
        assert (daemon.status().log_level, daemon.status().HasField("log_level_until")) == ("debug", True)
        async with daemon.connect() as session:
            calls = [session.call("l_hello") for _ in range(100)]
            for call in calls:
                assert (await call).ok
        async with asyncio.timeout(SECONDS_MAX):
            while len(re.findall("DEBUG .* call.ended", daemon.log.read_text()[marked:])) < len(calls):
                await asyncio.sleep(0.01)  # the log is a file, which has no event
        await level("info", 1)
        async with asyncio.timeout(SECONDS_MAX):
            while daemon.status().HasField("log_level_until"):
                await asyncio.sleep(0.05)  # the end of a second is no event of the contract
        marked = len(daemon.log.read_text())
        async with daemon.connect() as session:
            assert (await session.call("l_hello")).ok
        assert "DEBUG" not in daemon.log.read_text()[marked:]
