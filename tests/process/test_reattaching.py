"""What becomes of calls when the line drops, the client dies, another one takes over, or the daemon is killed.

Between client and daemon stands a line that can be cut. Tools wait for a file before they go on, so that
what happens while the line is down happens then.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Answer, Ask, Call, Gap, Kind, Log, Session, Update, connect
from toolcell_proto.v1 import operator_pb2, toolcell_pb2

pytestmark = pytest.mark.anyio

GONE_SECONDS_MAX = 40.0
"""For what a killed daemon leaves to end; less than its tools and their children would live by themselves."""
LINES = 3000
"""Of a kilobyte each: three times what is retained for a client that is away."""

WAITING = """
    import time
    from pathlib import Path
    from toolcell import ToolContext, tool

    @tool(timeout=30)
    def waiting(context: ToolContext) -> str:
        context.update("I am there.")
        with open("ran", "a") as ran:
            ran.write("once ")
        while not Path("go").exists():
            time.sleep(0.01)
        return "done"
"""

TALKING = f"""
    import time
    from pathlib import Path
    from toolcell import ToolContext, tool

    @tool(timeout=30)
    def talking(context: ToolContext) -> str:
        context.update("I am there.")
        while not Path("go").exists():
            time.sleep(0.01)
        for number in range({LINES}):
            context.log.info("%d %s", number, "x" * 1000)
            if number % 50 == 0:
                time.sleep(0.03)  # a worker keeps so many lines back, and what is lost there is another story
        return "done"
"""

ASKING = """
    import time
    from pathlib import Path
    from toolcell import ToolContext, tool

    @tool(timeout=30)
    def asking(context: ToolContext) -> str:
        context.update("I am there.")
        while not Path("go").exists():
            time.sleep(0.01)
        context.wait(context.ask("May I?", patterns=["it"]))
        return "allowed"
"""

REQUESTING = """
    from toolcell import ToolContext, tool

    @tool(timeout=30)
    def requesting(context: ToolContext) -> str:
        return context.wait(context.request("slow"))
"""


class Line:
    """A unix socket before the daemon's, whose connections can be cut."""

    def __init__(self, daemon: RunningDaemon) -> None:
        directory = daemon.directory / "line"
        directory.mkdir(mode=0o700)
        self.socket = str(directory / "daemon.sock")
        shutil.copy(Path(daemon.socket).parent / "agent.token", directory)
        self._daemon = daemon
        self._writers: set[asyncio.StreamWriter] = set()
        self._up = True
        self.tried = asyncio.Event()

    def connect(self, **options: Any) -> AbstractAsyncContextManager[Session]:
        return connect(self.socket, daemon="running", directory=self._daemon.project, **options)

    def cut(self) -> None:
        self._up = False
        self.tried.clear()
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._up = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tried.set()
        if not self._up:
            writer.transport.abort()
            return
        there, back = await asyncio.open_unix_connection(self._daemon.socket)
        self._writers |= {writer, back}
        try:
            await asyncio.gather(_carry(reader, back), _carry(there, writer))
        finally:
            self._writers -= {writer, back}
            for end in (writer, back):
                end.transport.abort()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # it was cut
    writer.transport.abort()


@asynccontextmanager
async def line_to(daemon: RunningDaemon) -> AsyncGenerator[Line]:
    line = Line(daemon)
    server = await asyncio.start_unix_server(line.serve, line.socket)
    try:
        yield line
    finally:
        line.cut()
        server.close()
        await server.wait_closed()


async def until_there(call: Call) -> AsyncIterator[object]:
    """The events of a call from where its tool has said that it is there."""
    events = aiter(call)
    async for event in events:
        if isinstance(event, Update):
            return events
    pytest.fail(f"it ended before it was there: {call.outcome}")


async def until(
    daemon: RunningDaemon, true: Callable[[toolcell_pb2.CallInfo], bool]
) -> toolcell_pb2.CallInfo:
    """Wait until the newest call is so, by the daemon's account: no client is there to be told."""
    async with daemon.operate() as operator:
        while True:
            listed = await operator.ask(operator.operator.ListCalls, operator_pb2.ListCallsRequest())
            calls = [call for call in listed.calls if call.directory == str(daemon.project)]
            if calls and true(calls[0]):
                return calls[0]
            await asyncio.sleep(0.02)


async def until_detached(daemon: RunningDaemon) -> None:
    async with daemon.operate() as operator:
        while True:
            found = await operator.ask(operator.operator.ListSessions, operator_pb2.ListSessionsRequest())
            if all(session.state == "detached" for session in found.sessions):
                return
            await asyncio.sleep(0.02)


def has_ended(call: toolcell_pb2.CallInfo) -> bool:
    return call.state == "ended"


async def test_a_call_goes_on_through_a_drop(daemon: RunningDaemon) -> None:
    daemon.tool("waiting", WAITING)

    async with line_to(daemon) as line, line.connect() as session:
        call = session.call("waiting")
        await until_there(call)
        line.cut()
        await until_detached(daemon)
        await line.tried.wait()
        line.mend()
        (daemon.project / "go").touch()
        outcome = await call
        again = await session.call("waiting")

    assert (outcome.kind, outcome.text, again.text) == (Kind.ok, "done", "done")
    assert (daemon.project / "ran").read_text() == "once once "


async def test_a_call_that_ended_while_the_line_was_down_has_its_outcome(daemon: RunningDaemon) -> None:
    daemon.tool("waiting", WAITING)

    async with line_to(daemon) as line, line.connect() as session:
        call = session.call("waiting")
        await until_there(call)
        line.cut()
        await until_detached(daemon)
        (daemon.project / "go").touch()
        await until(daemon, has_ended)
        line.mend()
        outcome = await call

    assert (outcome.kind, outcome.text) == (Kind.ok, "done"), outcome.message
    assert (daemon.project / "ran").read_text() == "once "


@pytest.mark.slow
async def test_what_had_to_go_while_the_line_was_down_is_counted_in_a_gap(daemon: RunningDaemon) -> None:
    daemon.tool("talking", TALKING)

    async with line_to(daemon) as line, line.connect() as session:
        call = session.call("talking")
        events = await until_there(call)
        line.cut()
        await until_detached(daemon)
        (daemon.project / "go").touch()
        await until(daemon, has_ended)
        line.mend()
        lines: list[int] = []
        lost = 0
        async for event in events:
            match event:
                case Gap(count):
                    lost += count
                case Log(text=text):
                    lines.append(int(text.split()[0]))
                case _:
                    pytest.fail(f"nothing else was told: {event}")
        outcome = await call

    assert outcome.text == "done"
    assert lost > 0
    assert lines == sorted(set(lines))
    assert len(lines) + lost == LINES


async def test_a_question_survives_a_drop_and_is_put_once(daemon: RunningDaemon) -> None:
    daemon.tool("asking", ASKING)
    asked: list[str] = []

    async def yes(ask: Ask) -> Answer:
        asked.append(ask.question)
        return True

    async with line_to(daemon) as line, line.connect(ask=yes) as session:
        call = session.call("asking")
        await until_there(call)
        line.cut()
        await until_detached(daemon)
        (daemon.project / "go").touch()
        line.mend()
        outcome = await call

    assert (outcome.text, asked) == ("allowed", ["May I?"])


async def test_an_answer_given_while_the_line_was_down_arrives(daemon: RunningDaemon) -> None:
    daemon.tool("asking", ASKING)
    (daemon.project / "go").touch()
    asked, answered = asyncio.Event(), asyncio.Event()
    questions: list[str] = []

    async def later(ask: Ask) -> Answer:
        questions.append(ask.question)
        asked.set()
        await answered.wait()
        return True

    async with line_to(daemon) as line, line.connect(ask=later) as session:
        call = session.call("asking")
        await asked.wait()
        line.cut()
        await until_detached(daemon)
        answered.set()
        await line.tried.wait()
        line.mend()
        outcome = await call

    assert (outcome.text, questions) == ("allowed", ["May I?"])


async def test_the_question_of_a_permission_rule_survives_a_drop_and_is_put_once(
    daemon: RunningDaemon,
) -> None:
    daemon.tool(
        "plain", 'from toolcell import tool\n\n@tool(name="plain")\ndef plain() -> str:\n    return "ran"\n'
    )
    daemon.configure('\n[permissions]\n"plain" = "ask"\n')
    asked, answered = asyncio.Event(), asyncio.Event()
    questions: list[str] = []

    async def later(ask: Ask) -> Answer:
        questions.append(ask.question)
        asked.set()
        await answered.wait()
        return True

    async with line_to(daemon) as line, line.connect(ask=later) as session:
        call = session.call("plain")
        await asked.wait()
        line.cut()
        await until_detached(daemon)
        answered.set()
        await line.tried.wait()
        line.mend()
        outcome = await call

    assert (outcome.text, len(questions)) == ("ran", 1)


async def test_a_request_that_is_served_while_the_line_drops_is_served_once(daemon: RunningDaemon) -> None:
    daemon.tool("requesting", REQUESTING)
    began, go_on = asyncio.Event(), asyncio.Event()
    served: list[str] = []

    async def slow(call: Call) -> str:
        served.append(call.tool)
        began.set()
        await go_on.wait()
        return "done"

    async with line_to(daemon) as line, line.connect(services={"slow": slow}) as session:
        call = session.call("requesting")
        await began.wait()
        line.cut()
        await until_detached(daemon)
        go_on.set()
        await line.tried.wait()
        line.mend()
        outcome = await call
    assert (outcome.text, served) == ("done", ["requesting"])


CLIENT = """
import asyncio, sys
from toolcell.client import connect, Update

async def main(socket, directory, tool):
    async def never(ask):
        print("asked", flush=True)
        await asyncio.sleep(30)

    async with connect(socket, directory=directory, daemon="running", ask=never) as session:
        call = session.call(tool, call_id="c-1")
        async for event in call:
            if isinstance(event, Update):
                print(session.resume_token, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def another_client(
    daemon: RunningDaemon, tool: str
) -> AsyncGenerator[tuple[asyncio.StreamReader, str]]:
    """A client in a process of its own that has called a tool, killed at the end; its words and its token."""
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, daemon.socket, str(daemon.project), tool, stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    try:
        yield client.stdout, (await client.stdout.readline()).decode().strip()
    finally:
        client.kill()
        await client.wait()


async def test_another_process_resumes_with_the_token(daemon: RunningDaemon) -> None:
    daemon.tool("waiting", WAITING)
    async with another_client(daemon, "waiting") as (_, token):
        pass
    async with daemon.connect(resume=token) as session:
        (daemon.project / "go").touch()
        outcome = await session.calls["c-1"]

    assert (outcome.kind, outcome.text) == (Kind.ok, "done")
    assert (daemon.project / "ran").read_text() == "once "


@pytest.mark.slow
async def test_a_call_that_ended_between_two_processes_has_its_outcome(daemon: RunningDaemon) -> None:
    daemon.tool("waiting", WAITING)
    async with another_client(daemon, "waiting") as (_, token):
        pass
    (daemon.project / "go").touch()
    await until(daemon, has_ended)
    async with daemon.connect(resume=token) as session:
        outcome = await session.calls["c-1"]

    assert (outcome.kind, outcome.text) == (Kind.ok, "done")


@pytest.mark.slow
async def test_a_question_that_died_with_its_client_is_put_to_the_next(daemon: RunningDaemon) -> None:
    daemon.tool("asking", ASKING)
    (daemon.project / "go").touch()

    async def yes(ask: Ask) -> Answer:
        return True

    async with another_client(daemon, "asking") as (words, token):
        assert await words.readline() == b"asked\n"
        await until_all_is_acknowledged(daemon)
    async with daemon.connect(resume=token, ask=yes) as session:
        outcome = await session.calls["c-1"]

    assert (outcome.kind, outcome.text) == (Kind.ok, "allowed")


async def until_all_is_acknowledged(daemon: RunningDaemon) -> None:
    """Wait until the daemon has nothing left to send again: the question has been taken note of."""
    async with daemon.operate() as operator:
        while True:
            found = await operator.ask(operator.operator.ListSessions, operator_pb2.ListSessionsRequest())
            if not any(session.retained_bytes for session in found.sessions):
                return
            await asyncio.sleep(0.02)


async def test_the_client_that_was_taken_over_from_is_told(daemon: RunningDaemon) -> None:
    daemon.tool("waiting", WAITING)

    async with daemon.connect() as first:
        call = first.call("waiting", call_id="c-1")
        await until_there(call)
        async with daemon.connect(resume=first.resume_token) as second:
            told = await call
            (daemon.project / "go").touch()
            outcome = await second.calls["c-1"]
        after = await first.call("waiting")

    assert (told.kind, told.cause, told.ran) == (Kind.internal, "superseded", True)
    assert (outcome.kind, outcome.text) == (Kind.ok, "done")
    assert (after.kind, after.cause) == (Kind.refused, "superseded")


@pytest.mark.parametrize("linger", [0.0, 0.2])
async def test_after_the_linger_the_calls_are_aborted(daemon: RunningDaemon, linger: float) -> None:
    daemon.tool("waiting", WAITING)

    async with line_to(daemon) as line, line.connect(linger=linger) as session:
        call = session.call("waiting")
        await until_there(call)
        line.cut()
        story = await until(daemon, has_ended)
        outcome = await call

    assert (story.outcome.kind, story.outcome.cause) == (toolcell_pb2.OUTCOME_KIND_ABORTED, "client_gone")
    assert (outcome.kind, outcome.cause, outcome.ran) == (Kind.internal, "connection_lost", True)


SLEEP = f"91.{os.getpid()}"
"""What its children sleep for, so that they are told from those of another run."""
CHILDREN = f"""
    import os, subprocess, time
    from toolcell import ToolContext, tool

    @tool(timeout=30)
    def children(context: ToolContext) -> None:
        subprocess.Popen(["sleep", "{SLEEP}"], start_new_session=True)
        if os.fork() == 0:
            os.setsid()
            os.execvp("sleep", ["sleep", "{SLEEP}"])
        context.update("I am there.")
        while True:
            time.sleep(1)
"""


def sleepers() -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if SLEEP.encode() in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            pass  # it ended while we looked
    return found


async def until_sleepers_are(count: int) -> None:
    while True:
        if len(sleepers()) == count:
            return
        await asyncio.sleep(0.01)  # processes start and end without a notification


@pytest.mark.slow
async def test_a_killed_daemon_takes_its_cells_along_and_its_clients_are_told(daemon: RunningDaemon) -> None:
    daemon.tool("children", CHILDREN)
    daemon.tool("waiting", WAITING)
    (daemon.project / "go").touch()

    async with daemon.connect(linger=5) as session:
        call = session.call("children")
        await until_there(call)
        await until_sleepers_are(2)
        daemon.stop(signal.SIGKILL)
        async with asyncio.timeout(GONE_SECONDS_MAX):
            await until_sleepers_are(0)
        # What the killed one left behind, its socket and its lock file, is no obstacle to the next.
        daemon.start()
        outcome = await call
        again = await session.call("waiting")

    assert (outcome.kind, outcome.cause, outcome.ran) == (Kind.internal, "connection_lost", True)
    assert outcome.side_effects_possible
    assert again.text == "done", again.message
