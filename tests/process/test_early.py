"""A call of a tool whose file is still being described waits for it, and only as long as that may bring it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tests.daemons import RunningDaemon
from tests.process.wire import dialled, refusal_of_rpc

from toolcell.client import Call, Outcome, Session
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

OPEN_WAIT_SECONDS = 0.05
GO = ".toolcell/tools/go"
"""Beside the file, where it may read while it is described."""


@pytest.fixture(autouse=True)
def late(daemon: RunningDaemon, request: pytest.FixtureRequest) -> None:
    """A file that loads for as long as it is there and no file `go`; sessions open without waiting for it, unless the
    parameter is the seconds for which they do."""
    seconds = getattr(request, "param", OPEN_WAIT_SECONDS)
    daemon.configure(f'[daemon]\nopen_wait = "{seconds}s"\nload_timeout = "60s"\n')
    daemon.tool(
        "late",
        f"""
        import pathlib, time
        tools = pathlib.Path({str(daemon.project / GO)!r}).parent
        while not (tools / "go").exists() and (tools / "late.py").exists():  # which is gone with the project
            time.sleep(0.01)
        from toolcell import tool

        @tool
        def late(n: int = 1) -> int:
            with open("runs", "a") as runs:
                runs.write("x")
            return n
        """,
    )


@asynccontextmanager
async def opened(daemon: RunningDaemon) -> AsyncGenerator[Session]:
    """A session that does not know the tool yet."""
    async with daemon.connect(linger=0.2) as session:
        assert "late" not in session.catalog.tools
        yield session


def ended(call: Call) -> asyncio.Future[Outcome]:
    async def outcome() -> Outcome:
        return await call

    return asyncio.ensure_future(outcome())


def go(daemon: RunningDaemon) -> None:
    (daemon.project / GO).touch()


async def test_a_call_waits_for_its_tool_and_one_of_no_tool_is_refused_when_all_are_known(
    daemon: RunningDaemon,
) -> None:
    async with opened(daemon) as session:
        assert session.catalog.pending == (await session.described(0.01)).pending == 1
        calls = [session.call("late", {"n": n}) for n in range(3)]
        unknown = session.call("unknown")
        done, _ = await asyncio.wait([ended(call) for call in [*calls, unknown]], timeout=0.3)
        assert not done
        go(daemon)
        catalog = await session.described()
        assert (catalog.pending, list(catalog.tools)) == (0, ["late"])
        assert [(await call).details for call in calls] == [0, 1, 2]
        outcome = await unknown
        assert (outcome.kind, outcome.cause, outcome.ran) == ("refused", "unknown_tool", False)
        assert "being described" not in outcome.message
        assert (await session.call("late")).ok


@pytest.mark.slow
async def test_an_abort_ends_a_call_that_waits_and_its_id_may_come_again(daemon: RunningDaemon) -> None:
    async with opened(daemon) as session:
        call = session.call("late", call_id="c-1")
        call.abort()
        outcome = await call
        assert (outcome.kind, outcome.cause, outcome.ran) == ("aborted", "client", False), outcome
        assert outcome.message == "by the client; it had not started."
        again = session.call("late", call_id="c-1")
        go(daemon)
        assert (await again).ok


async def test_operators_see_a_call_that_waits_for_its_tool(daemon: RunningDaemon) -> None:
    def listed() -> list[tuple[str, str, str, str]]:
        answer = daemon.ask("Operator/ListCalls", op.ListCallsRequest(), op.ListCallsResponse)
        return [
            (call.call_id, call.tool, call.state, call.outcome.cause)
            for call in answer.calls
            if call.call_id == "c-seen"
        ]

    async with opened(daemon) as session:
        call = session.call("late", call_id="c-seen")
        while not listed():
            await asyncio.sleep(0.01)
        assert listed() == [("c-seen", "late", "waiting", "")]
        assert daemon.status().calls == 1
        abort = pb.AbortCallRequest(call_id="c-seen", reason="by me")
        assert daemon.ask("ToolCell/AbortCall", abort, pb.AbortCallResponse).running
        assert (await call).message == "by an operator: by me; it had not started."
        assert listed() == [("c-seen", "late", "ended", "operator")]
        go(daemon)


async def test_a_call_waits_no_longer_than_it_may_take(daemon: RunningDaemon) -> None:
    async with opened(daemon) as session:
        outcome = await session.call("late", timeout=0.2)
        assert (outcome.kind, outcome.cause, outcome.ran) == ("refused", "unknown_tool", False)
        assert "(1 files are still being described)" in outcome.message
        go(daemon)


@pytest.mark.slow
async def test_a_call_waits_for_a_file_of_its_name_as_long_as_that_may_load(daemon: RunningDaemon) -> None:
    async with opened(daemon) as session:
        call, unknown = session.call("late"), session.call("unknown")
        outcome = await unknown
        assert (outcome.kind, outcome.cause) == ("refused", "unknown_tool")
        go(daemon)
        assert (await call).ok


async def test_a_call_that_waits_ends_with_its_session(daemon: RunningDaemon) -> None:
    async with opened(daemon) as session:
        call = session.call("late")
    outcome = await call
    assert (outcome.kind, outcome.ran) == ("aborted", False), outcome
    go(daemon)


async def test_a_call_that_waits_is_found_again_and_runs_once(daemon: RunningDaemon) -> None:
    call = pb.AttachRequest(call=pb.Call(call_id="c-seen", tool="late", arguments=b"{}"))
    other = pb.AttachRequest(call=pb.Call(call_id="c-seen", tool="late", arguments=b'{"n": 2}'))
    async with dialled(daemon) as wire:
        stream = wire.tools.Attach(metadata=wire.agent)
        await stream.write(
            pb.AttachRequest(open=pb.Open(protocol=1, agent="t", directory=str(daemon.project)))
        )
        welcome = (await stream.read()).events[0].welcome
        await stream.write(call)
        await stream.write(other)
        refused = await until(stream, "refused")
        assert refused.call_id == "", "the call itself goes on"
        stream.cancel()
        stream = wire.tools.Attach(metadata=wire.agent)
        opening = pb.Open(protocol=1, session_id=welcome.session_id, resume_token=welcome.resume_token)
        await stream.write(pb.AttachRequest(open=opening))
        await stream.write(call)
        go(daemon)
        ended = await until(stream, "outcome")
        assert ended.call_id == "c-seen"
        await stream.write(pb.AttachRequest(close=pb.Close()))
        await stream.done_writing()
        while await stream.read() is not grpc.aio.EOF:
            pass
    assert (daemon.project / "runs").read_text() == "x"


async def until(stream: Any, kind: str) -> pb.Event:
    async with asyncio.timeout(30):
        while True:
            event: pb.Event
            for event in (await stream.read()).events:
                if event.WhichOneof("event") == kind:
                    return event


@pytest.mark.slow
async def test_one_call_without_a_session_waits_as_well(daemon: RunningDaemon) -> None:
    async with dialled(daemon) as wire:
        request = pb.CallToolRequest(
            call=pb.Call(tool="late", arguments=b"{}"), directory=str(daemon.project), agent="t"
        )
        rpc = wire.tools.CallTool(request, metadata=wire.agent)
        await asyncio.sleep(3 * OPEN_WAIT_SECONDS)  # longer than a session waits for its tools
        go(daemon)
        kinds = [answer.event.WhichOneof("event") async for answer in rpc]
        assert kinds[-1] == "outcome"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in wire.tools.CallTool(
                pb.CallToolRequest(call=pb.Call(tool="unknown"), directory=str(daemon.project)),
                metadata=wire.agent,
            ):
                pass
        assert refusal_of_rpc(caught.value).reason == "UNKNOWN_TOOL"


LONG_OPENING = pytest.mark.parametrize("late", [60], indirect=True)
"""Longer than a test waits."""
SECONDS_MAX = 40
OTHER = "from toolcell import tool\n\n@tool\ndef other() -> str: return 'from another file'\n"


@pytest.mark.slow
@LONG_OPENING
async def test_a_session_that_opens_at_once_waits_for_the_tool_that_it_names_alone(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("other", OTHER)
    async with asyncio.timeout(SECONDS_MAX), daemon.connect(at_once=True) as session:
        catalog = await session.described(SECONDS_MAX, tool="other")
        assert (list(catalog.tools), catalog.pending) == (["other"], 1)
        assert (await session.call("other")).text == "from another file"
        go(daemon)
        assert (await session.call("late")).ok


@LONG_OPENING
async def test_one_call_without_a_session_waits_for_no_other_file(daemon: RunningDaemon) -> None:
    daemon.tool("other", OTHER)
    request = pb.CallToolRequest(call=pb.Call(tool="other"), directory=str(daemon.project), agent="t")
    async with asyncio.timeout(SECONDS_MAX), dialled(daemon) as wire:
        rpc = wire.tools.CallTool(request, metadata=wire.agent)
        kinds = [answer.event.WhichOneof("event") async for answer in rpc]
    assert kinds[-1] == "outcome"
    go(daemon)


@pytest.mark.slow
@LONG_OPENING
async def test_the_command_waits_for_no_other_file(daemon: RunningDaemon) -> None:
    daemon.tool("other", OTHER)
    words = ["-m", "toolcell.cli", "--socket", daemon.socket, "-C", str(daemon.project), "call", "other"]
    command = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(SECONDS_MAX):
            told, _ = await command.communicate()
    finally:
        if command.returncode is None:
            command.kill()
            await command.wait()
        go(daemon)
    assert told.decode() == "from another file\n"


@pytest.mark.slow
async def test_no_more_calls_wait_than_a_session_may_have(daemon: RunningDaemon) -> None:
    async with opened(daemon) as session:
        calls = [session.call("unknown") for _ in range(520)]
        outcomes = await asyncio.gather(*calls[512:])
        assert {outcome.cause for outcome in outcomes} == {"busy"}
        go(daemon)
        outcomes = await asyncio.gather(*calls[:512])
        assert {outcome.cause for outcome in outcomes} == {"unknown_tool"}
