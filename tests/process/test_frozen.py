"""A daemon whose process is stopped, as by a debugger: a call ends at its own limit all the same."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Kind, Started
from toolcell.client._grpc.channel import Channel
from toolcell.client._transport import connection

pytestmark = pytest.mark.anyio

TOOL = """
    import time
    from toolcell import tool

    @tool
    def nap(seconds: float) -> str:
        print("asleep", flush=True)
        time.sleep(seconds)
        return "slept"
"""
LIMITED = TOOL.replace("@tool", "@tool(timeout=3)")
LIMIT_SECONDS = 3  # the daemon is stopped sooner, also on a busy machine


@contextmanager
def stopped(daemon: RunningDaemon) -> Generator[None]:
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("whose", ["call", "session", "tool", "tool within the call", "configuration"])
async def test_a_call_ends_at_its_limit_where_the_daemon_is_stopped(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    daemon.tool("nap", LIMITED if "tool" in whose else TOOL)
    if whose == "configuration":
        daemon.config.write_text(f"[defaults]\ntimeout = {LIMIT_SECONDS}\n")
        daemon.reload()
    monkeypatch.setattr(connection, "SILENT_SECONDS", 0.2)
    limits = {"timeout": LIMIT_SECONDS} if whose == "session" else None
    given = {"call": LIMIT_SECONDS, "tool within the call": 60}.get(whose)
    async with daemon.connect(limits=limits) as session:
        call = session.call("nap", {"seconds": 60}, timeout=given)
        async for event in call:
            if isinstance(event, Started):
                break
        with stopped(daemon), anyio.fail_after(30):
            outcome = await call
        assert (outcome.kind, outcome.cause) == (Kind.internal, "connection_lost")
        assert outcome.message.startswith(
            f"The call's limit of {LIMIT_SECONDS} s is over, and the daemon does not answer"
        )
        assert outcome.side_effects_possible
        assert (await session.call("nap", {"seconds": 0})).text == "slept"  # of the daemon that goes on


@pytest.mark.slow
async def test_leaving_does_not_wait_for_a_daemon_that_is_stopped(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.tool("nap", TOOL)
    monkeypatch.setattr(connection, "SILENT_SECONDS", 0.2)
    with anyio.fail_after(connection.CLOSE_SECONDS / 2):
        async with daemon.connect() as session:
            call = session.call("nap", {"seconds": 60}, timeout=LIMIT_SECONDS)
            await call.__aiter__().__anext__()
            os.kill(daemon.pid, signal.SIGSTOP)
            await call
    os.kill(daemon.pid, signal.SIGCONT)


@pytest.mark.slow
async def test_a_daemon_that_answers_measures_the_limit_itself(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a question does not count, so a call may go on long after its limit."""
    daemon.tool(
        "asks",
        """
        from toolcell import ToolContext, tool

        @tool
        async def asks(context: ToolContext) -> str:
            await context.ask("go on?")
            return "went on"
        """,
    )
    monkeypatch.setattr(connection, "SILENT_SECONDS", 0.2)
    asked = anyio.Event()
    answers = 0
    answer = Channel.answers

    async def counted(channel: Channel, seconds: float) -> bool:
        nonlocal answers
        answers += 1
        if answers == 3:
            asked.set()
        return await answer(channel, 30)

    monkeypatch.setattr(Channel, "answers", counted)

    async def ask(_: object) -> bool:
        await asked.wait()
        return True

    async with daemon.connect(ask=ask) as session:
        assert (await session.call("asks", timeout=LIMIT_SECONDS)).text == "went on"
    assert answers == 3


@pytest.mark.parametrize("whose", ["call", "tool", "tool within the call"])
async def test_the_command_says_that_the_daemon_is_stopped(daemon: RunningDaemon, whose: str) -> None:
    daemon.tool("nap", LIMITED if "tool" in whose else TOOL)
    daemon.describe()
    program = (
        "from toolcell.cli.calls import quick\n"
        "from toolcell.cli.calls.quick import call\n"
        "call.SILENT_SECONDS = 0.2\n"
        "import sys; sys.exit(quick.run(sys.argv[1:]))\n"
    )
    given = {"call": ["--timeout", str(LIMIT_SECONDS)], "tool": []}.get(whose, ["--timeout", "60"])
    words = ["--socket", daemon.socket, "call", "nap", "seconds=60", *given]
    process = await anyio.open_process([sys.executable, "-c", program, *words], cwd=daemon.project)
    assert process.stderr is not None
    try:
        said = b""
        with anyio.fail_after(30):
            while b"asleep" not in said:
                said += await process.stderr.receive()
            with stopped(daemon):
                said = b"".join([chunk async for chunk in process.stderr])
                assert await process.wait() == 70
        assert f"limit of {LIMIT_SECONDS} s is over, and the daemon does not answer".encode() in said
    finally:
        await process.aclose()
