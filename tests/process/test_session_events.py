"""Tool files that hear what happens to a session: `on_session`, in the worker that their calls have."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon
from tests.process.wire import dialled

from toolcell._session_reasons import REASONS
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

HEARS = """
import json, os
from toolcell import SessionEvent, ToolContext, tool

heard = []

def on_session(event: SessionEvent, context: ToolContext) -> None:
    heard.append([event.reason, dict(event.data), context.session_id])
    with open("heard", "a") as file:
        file.write(json.dumps([event.reason, dict(event.data), os.getpid()]) + "\\n")

@tool(isolation="session")
def hears() -> list:
    return heard
"""


def heard(daemon: RunningDaemon) -> list[tuple[str, dict[str, object], int]]:
    file = daemon.project / "heard"
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


async def until(daemon: RunningDaemon, *reasons: str) -> None:
    async with asyncio.timeout(40):
        while [each[0] for each in heard(daemon)] != list(reasons):
            await asyncio.sleep(0.02)


async def logged(daemon: RunningDaemon, text: str) -> str:
    """Wait for a text in the log; returns the log from where it first names the project, which is the test's own."""
    found = ""
    with suppress(TimeoutError):
        async with asyncio.timeout(40):
            while text not in (found := daemon.log.read_text().partition(f"{daemon.project}/")[2]):
                await asyncio.sleep(0.02)
    if text not in found:
        pytest.fail(f"{text!r} is not at the end of the log:\n{daemon.log.read_text()[-4000:]}")
    return found


async def test_a_session_is_told_from_start_to_shutdown_in_the_worker_of_its_calls(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("hears", HEARS)
    async with daemon.connect() as session:
        await until(daemon, "start")
        session.tell("branch", {"previousSessionFile": "a.jsonl"}, session_id="ses_1")
        session.tell("auto_compaction_end")
        await until(daemon, "start", "branch", "auto_compaction_end")
        outcome = await session.call("hears")
        assert outcome.details == [
            ["start", {}, session.id],
            ["branch", {"previousSessionFile": "a.jsonl"}, "ses_1"],
            ["auto_compaction_end", {}, session.id],
        ]
    await until(daemon, "start", "branch", "auto_compaction_end", "shutdown")
    assert len({process for _, _, process in heard(daemon)}) == 1


@pytest.mark.parametrize("isolation", ["worker", "call"])
async def test_the_other_isolations_are_told_as_well(daemon: RunningDaemon, isolation: str) -> None:
    daemon.tool("hears", HEARS.replace('"session"', f'"{isolation}"'))
    async with daemon.connect() as session:
        await until(daemon, "start")
        assert (await session.call("hears")).ok
    await until(daemon, "start", "shutdown")


async def test_a_failing_handler_is_logged_and_harms_nothing(daemon: RunningDaemon) -> None:
    daemon.tool(
        "fails",
        """
        from toolcell import tool

        def on_session(event):
            raise ValueError(f"no {event.reason}")

        @tool
        def fails() -> str:
            return "works"
        """,
    )
    async with daemon.connect() as session:
        text = await logged(daemon, "on_session(start) failed")
        assert "ValueError: no start (line" in text
        assert (await session.call("fails")).text == "works"
    await logged(daemon, "on_session(shutdown) failed")


@pytest.mark.slow
async def test_a_handler_that_asks_hangs_or_dies_loses_its_worker_only(daemon: RunningDaemon) -> None:
    for name, body in {
        "asks": "await context.ask('May I?')",
        "hangs": "time.sleep(60)",
        "dies": "os._exit(3)",
    }.items():
        daemon.tool(
            name,
            f"""
            import os, time
            from toolcell import tool

            async def on_session(event, context):
                if event.reason == "start":
                    {body}

            @tool(isolation="session")
            def {name}() -> str:
                return "works"
            """,
        )
    async with daemon.connect() as session:
        await logged(
            daemon, "asks.py: on_session(start) failed: it asks a question, which only a call can do"
        )
        await logged(daemon, "dies.py: on_session(start) failed: its process ended: exit 3")
        await logged(daemon, "hangs.py: on_session(start) failed: it did not return within 5 s")
        assert [(await session.call(name)).text for name in ("asks", "hangs", "dies")] == ["works"] * 3
    assert daemon.status().sessions == 0


@pytest.mark.slow
async def test_a_file_that_comes_or_changes_later_hears_the_start_then(daemon: RunningDaemon) -> None:
    async with daemon.connect() as session:
        daemon.tool("hears", HEARS)
        await session.reload()
        await until(daemon, "start")
        daemon.tool("hears", HEARS + "# edited\n")
        await session.reload()
        await until(daemon, "start", "start")
    await until(daemon, "start", "start", "shutdown")


async def test_what_the_session_may_not_call_hears_nothing(daemon: RunningDaemon) -> None:
    daemon.tool("hears", HEARS)
    daemon.tool("other", HEARS.replace("hears", "other").replace('"heard"', '"told"'))
    async with daemon.connect(deny=["hears"]):
        async with asyncio.timeout(40):
            while not (daemon.project / "told").exists():
                await asyncio.sleep(0.02)
    assert heard(daemon) == []


@pytest.mark.parametrize(("action", "hears"), [("ask", False), ("deny", False), ("allow", True)])
async def test_a_tool_that_is_asked_about_first_hears_nothing(
    daemon: RunningDaemon, action: str, hears: bool
) -> None:
    daemon.configure(f'[permissions]\nhears = "{action}"\n')
    daemon.tool("hears", HEARS)
    daemon.tool("other", HEARS.replace("hears", "other").replace('"heard"', '"told"'))
    async with daemon.connect():
        async with asyncio.timeout(40):
            while not (daemon.project / "told").exists():
                await asyncio.sleep(0.02)
    assert bool(heard(daemon)) == hears


async def test_a_call_without_a_session_starts_no_handler(daemon: RunningDaemon) -> None:
    daemon.tool("hears", HEARS)
    async with dialled(daemon) as wire:
        call = pb.Call(tool="hears", arguments=b"{}")
        request = pb.CallToolRequest(call=call, directory=str(daemon.project))
        events = [each.event async for each in wire.tools.CallTool(request, metadata=wire.agent)]
    assert events[-1].outcome.kind == pb.OUTCOME_KIND_OK
    assert heard(daemon) == []


@pytest.mark.slow
async def test_a_thousand_events_are_bounded(daemon: RunningDaemon) -> None:
    daemon.tool("hears", HEARS.replace("heard.append", "__import__('time').sleep(0.02); heard.append"))
    before = len(daemon.log.read_text())  # of the tests before
    async with daemon.connect() as session:
        for number in range(1000):
            session.tell("tree", {"number": number})
        async with asyncio.timeout(30):
            while not heard(daemon) or heard(daemon)[-1][1] != {"number": 999}:
                await asyncio.sleep(0.05)
        assert len(heard(daemon)) < 200
    log = daemon.log.read_text()[before:]
    assert "tree is not told, as 64 events wait" in log
    assert "no more is said about its events" in log
    assert len(log.splitlines()) < 80


async def test_the_client_says_what_there_is_not(daemon: RunningDaemon) -> None:
    async with daemon.connect() as session:
        with pytest.raises(ValueError, match=f"it is one of {REASONS[0]}"):
            session.tell("start")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="more than 32768"):
            session.tell("tree", {"a": "b" * 40_000})
        with pytest.raises(TypeError, match="not JSON"):
            session.tell("tree", {"a": Path()})


@pytest.mark.slow
async def test_a_secret_in_a_failure_is_in_no_log(daemon: RunningDaemon) -> None:
    file = daemon.directory / "token"
    file.write_text("hunter2-0123456789\n")
    daemon.config.write_text(f'trust = "all"\n[secrets]\nTOKEN = {{ file = "{file}" }}\n')
    daemon.reload()
    daemon.tool(
        "leaks",
        """
        import os
        from toolcell import tool

        def on_session(event):
            raise ValueError(f"no {os.environ['TOKEN']}")

        @tool(secrets=["TOKEN"])
        def leaks() -> str:
            return os.environ["TOKEN"][:7]
        """,
    )
    async with daemon.connect() as session:
        text = await logged(daemon, "on_session(start) failed: ValueError: no")
        assert (await session.call("leaks")).text == "hunter2"  # it has it, and a part is no secret
    assert "0123456789" not in text
    assert "hunter2" not in text
