"""All ways to stop a call end alike: one terminal event, and nothing of the tool is left when it arrives.

Seven wishes meet seven tools. What a tool may do about an abort is up to it: some listen, some do not,
some cannot. What comes of it is not.

That something ran and that nothing is left are both read from the kernel, by a mark that every process
of a tool bears: its name (/proc/PID/comm), which forks inherit, or an argument. Whatever a tool starts
here ends by itself as well, so that a broken daemon costs a failed test and not a machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Call, Kind, Update
from toolcell_proto.v1 import operator_pb2
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcell_proto.v1.toolcell_pb2_grpc import ToolCellStub

pytestmark = pytest.mark.anyio

GRACE = '[daemon]\nabort_grace = "1s"\n'
"""Long enough for a tool that listens on a busy machine, short for the four that do not."""

DEADLINE_SECONDS = 10.0
"""Of CallTool: seven cells start in less than one, where nothing else runs."""

STOPPED, SLEEP, CROWDED = f"tc-stop-{os.getpid()}", f"31.{os.getpid()}", f"tc-all-{os.getpid()}"
"""Of this run alone: another one on the machine has marks of its own."""

TOOLS: Mapping[str, str] = {
    "patient": "os.write(1, THERE); time.sleep(60)",
    "spinning": "os.write(1, THERE)\n    while time.monotonic() < deadline: pass",
    # One call into C that never looks at signals and never lets go of the interpreter.
    "counting": """steps = itertools.chain(map(os.write, [1], [THERE]), itertools.repeat(0, 60 * 10**8))
    collections.deque(steps, maxlen=0)""",
    # One call into C that lets go of the interpreter and never comes back to it.
    "querying": """database = sqlite3.connect(":memory:")
    database.create_function("there", 0, functools.partial(os.write, 1, THERE))
    database.execute(
        "WITH RECURSIVE n(i) AS (SELECT there() UNION ALL SELECT i + 1 FROM n LIMIT 6000000000) SELECT count(*) FROM n"
    ).fetchone()""",
    "awaiting": "os.write(1, THERE); await asyncio.sleep(60)",
    "swallowing": """os.write(1, THERE)
    while time.monotonic() < deadline:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)""",
    "deaf": """signal.signal(signal.SIGRTMIN + 1, signal.SIG_IGN)
    os.write(1, THERE)
    time.sleep(60)""",
}
"""What each tool does. It says that it is there once it can no longer do otherwise: from within the call into C."""

SETTLED = frozenset({"patient", "spinning", "awaiting"})
"""Those that stop when they are asked to; the others are killed."""

HEAD = """
import asyncio, collections, contextlib, ctypes, functools, itertools, os, signal, sqlite3, subprocess, time
from toolcell import ToolContext, tool

THERE = b"there"

def mark(name):
    ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME

"""


def write_tools(daemon: RunningDaemon) -> None:
    daemon.config.write_text(GRACE)
    for name, body in TOOLS.items():
        kind = "async def" if "await" in body else "def"
        daemon.tool(
            name,
            f"""{HEAD}
@tool(timeout=30)
{kind} {name}() -> None:
    mark("{STOPPED}")
    deadline = time.monotonic() + 30
    subprocess.Popen(["sleep", "{SLEEP}"])
    {body}
""",
        )


def bearing(*marks: str) -> list[int]:
    """The processes that bear a mark, by the kernel's account; zombies are among them."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it ended while we looked
            comm = Path(f"/proc/{name}/comm").read_text().strip()
            command = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
            if comm in marks or any(mark in command.split("\0") for mark in marks):
                found.append(int(name))
    return found


MARKS = (STOPPED, SLEEP, CROWDED)


async def all_are_there() -> None:
    """Wait until each tool and its child bear their marks.

    A tool goes on when the kernel has given its child to another program, which is before that has its arguments.
    """
    async with asyncio.timeout(60):
        while len(bearing(*MARKS)) != 2 * len(TOOLS):
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def nothing_bears_a_mark() -> Iterator[None]:
    yield
    left = bearing(*MARKS)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == []


# Clients that show every event, where the library shows an outcome only.


class Stream:
    """An Attach stream as it is on the wire, with a count of the endings of each call."""

    def __init__(self, stub: ToolCellStub, metadata: tuple[tuple[str, str], ...]) -> None:
        self.stub = stub
        self.metadata = metadata
        self.rpc = stub.Attach(metadata=metadata)
        self.endings: Counter[str] = Counter()
        self.outcomes: dict[str, pb.Outcome] = {}
        self.there: set[str] = set()
        self.welcome = pb.Welcome()

    async def open(self, directory: Path) -> None:
        opening = pb.Open(protocol=1, agent="test", directory=str(directory))
        await self.rpc.write(pb.AttachRequest(open=opening))
        async for event in self.events():
            if event.WhichOneof("event") == "welcome":
                self.welcome = event.welcome
            if event.catalog.last:
                return

    async def call(self, names: Mapping[str, str]) -> None:
        """Start tools and wait until each has said that it is there."""
        for name in names:
            await self.rpc.write(pb.AttachRequest(call=pb.Call(call_id=f"c-{name}", tool=name)))
        async for event in self.events():
            if event.log.text == "there":
                self.there.add(event.call_id.removeprefix("c-"))
            if self.there == set(names):
                return

    async def events(self) -> AsyncIterator[pb.Event]:
        while (message := await self.rpc.read()) is not grpc.aio.EOF:
            assert isinstance(message, pb.AttachResponse)
            for event in message.events:
                if event.WhichOneof("event") in ("outcome", "refused"):
                    self.endings[event.call_id] += 1
                    self.outcomes[event.call_id] = event.outcome
                yield event

    async def endings_of(self, names: Mapping[str, str]) -> None:
        """Read until all of them have ended."""
        async for _ in self.events():
            if len(self.endings) == len(names):
                return

    async def rest(self) -> None:
        """Read until the stream ends."""
        async for _ in self.events():
            pass

    async def close(self) -> None:
        await self.rpc.write(pb.AttachRequest(close=pb.Close()))
        await self.rest()


@asynccontextmanager
async def attached(daemon: RunningDaemon) -> AsyncGenerator[Stream]:
    token = (Path(daemon.socket).parent / "agent.token").read_text()
    async with grpc.aio.insecure_channel(f"unix:{daemon.socket}") as channel:
        stream = Stream(ToolCellStub(channel), (("authorization", f"Bearer {token}"),))
        await stream.open(daemon.project)
        yield stream


def assert_all_stopped(outcomes: Mapping[str, pb.Outcome], cause: str = "client") -> None:
    """Seven outcomes that differ only in how the tool took it."""
    said = {
        call_id.removeprefix("c-"): (outcome.kind, outcome.cause, outcome.ran, outcome.stopped)
        for call_id, outcome in outcomes.items()
    }
    # A child was started and left to itself, so that no cell was empty when it settled.
    assert said == dict.fromkeys(TOOLS, (pb.OUTCOME_KIND_ABORTED, cause, True, pb.STOPPED_KILLED))
    for name in TOOLS:
        settled = "stopped by itself" in outcomes[f"c-{name}"].message
        assert settled == (name in SETTLED), outcomes[f"c-{name}"].message


async def outcomes_by_the_daemon(daemon: RunningDaemon, ids: Mapping[str, str]) -> dict[str, pb.Outcome]:
    """How calls without a client ended; waits until all have."""
    async with daemon.operate() as operator:
        while True:
            calls = await operator.ask(operator.operator.ListCalls, operator_pb2.ListCallsRequest())
            ended = {
                call.call_id: call.outcome
                for call in calls.calls
                if call.state == "ended" and call.directory == str(daemon.project)
            }
            if len(ended) == len(ids):
                return ended
            await asyncio.sleep(0.02)  # no client is notified, on purpose


@pytest.mark.slow
async def test_a_call_is_stopped_by_abort_call(daemon: RunningDaemon) -> None:
    write_tools(daemon)
    daemon.reload()
    async with attached(daemon) as stream:
        await stream.call(TOOLS)
        await all_are_there()
        for name in TOOLS:
            wish = pb.AbortCallRequest(
                session_id=stream.welcome.session_id,
                resume_token=stream.welcome.resume_token,
                call_id=f"c-{name}",
            )
            answer = await stream.stub.AbortCall(wish, metadata=stream.metadata)
            assert answer.running
        await stream.endings_of(TOOLS)
        assert bearing(*MARKS) == []
        await stream.close()

    assert_all_stopped(stream.outcomes)
    assert set(stream.endings.values()) == {1}


async def test_a_call_is_stopped_on_its_stream(daemon: RunningDaemon) -> None:
    write_tools(daemon)
    daemon.reload()
    async with attached(daemon) as stream:
        await stream.call(TOOLS)
        for name in TOOLS:
            await stream.rpc.write(pb.AttachRequest(abort=pb.Abort(call_id=f"c-{name}")))
        await stream.endings_of(TOOLS)
        assert bearing(*MARKS) == []
        await stream.close()

    assert_all_stopped(stream.outcomes)
    assert set(stream.endings.values()) == {1}


@pytest.mark.slow
async def test_a_call_is_stopped_by_the_end_of_its_session(daemon: RunningDaemon) -> None:
    write_tools(daemon)
    daemon.reload()
    async with attached(daemon) as stream:
        await stream.call(TOOLS)
        await stream.close()
        assert bearing(*MARKS) == []

    assert_all_stopped(stream.outcomes, cause="session_closed")
    assert set(stream.endings.values()) == {1}


@pytest.mark.slow
async def test_a_call_is_stopped_by_the_end_of_the_daemon(daemon: RunningDaemon) -> None:
    write_tools(daemon)
    daemon.reload()
    async with attached(daemon) as stream:
        await stream.call(TOOLS)
        assert daemon.process is not None
        daemon.process.terminate()
        await stream.endings_of(TOOLS)  # its connection may be closed before its status has been read
        assert bearing(*MARKS) == []
        assert daemon.wait() == 0

    assert_all_stopped(stream.outcomes, cause="daemon_stopping")
    assert set(stream.endings.values()) == {1}


async def call_tool(daemon: RunningDaemon, name: str, seconds: float | None, there: asyncio.Event) -> None:
    """One CallTool; its end is the caller's business."""
    token = (Path(daemon.socket).parent / "agent.token").read_text()
    async with grpc.aio.insecure_channel(f"unix:{daemon.socket}") as channel:
        request = pb.CallToolRequest(
            call=pb.Call(call_id=f"c-{name}", tool=name), directory=str(daemon.project), agent="test"
        )
        rpc = ToolCellStub(channel).CallTool(
            request, metadata=(("authorization", f"Bearer {token}"),), timeout=seconds
        )
        async for answer in rpc:
            if answer.event.log.text == "there":
                there.set()


@pytest.mark.slow
async def test_a_call_is_stopped_by_cancelling_call_tool(daemon: RunningDaemon) -> None:
    write_tools(daemon)
    daemon.reload()
    there = {name: asyncio.Event() for name in TOOLS}
    tasks = [asyncio.create_task(call_tool(daemon, name, None, there[name])) for name in TOOLS]
    all_there = asyncio.gather(*(event.wait() for event in there.values()))
    waiting: list[asyncio.Future[Any]] = [all_there, *tasks]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if came := all_there.done():
        await all_are_there()
    for each in waiting:
        each.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert came, ends

    assert_all_stopped(await outcomes_by_the_daemon(daemon, TOOLS), cause="client_gone")
    assert bearing(*MARKS) == []


@pytest.mark.slow
async def test_a_call_is_stopped_by_the_deadline_of_call_tool(daemon: RunningDaemon) -> None:
    write_tools(daemon)
    daemon.reload()
    daemon.describe()
    there = {name: asyncio.Event() for name in TOOLS}
    ends = await asyncio.gather(
        *(call_tool(daemon, name, DEADLINE_SECONDS, there[name]) for name in TOOLS), return_exceptions=True
    )
    assert all(event.is_set() for event in there.values())
    for end in ends:
        assert isinstance(end, grpc.aio.AioRpcError)
        assert end.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    assert_all_stopped(await outcomes_by_the_daemon(daemon, TOOLS), cause="client_gone")
    assert bearing(*MARKS) == []


CLIENT = """
import asyncio, sys
from toolcell.client import connect, Log

async def main(socket, directory, *tools):
    async with connect(socket, directory=directory, daemon="running", linger=0.3) as session:
        calls = [session.call(name, call_id=f"c-{name}") for name in tools]
        await asyncio.gather(*(watch(call) for call in calls))

async def watch(call):
    async for event in call:
        if isinstance(event, Log):
            print(call.tool, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
async def test_a_call_is_stopped_by_the_death_of_its_client_after_the_linger(daemon: RunningDaemon) -> None:
    write_tools(daemon)
    daemon.reload()
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, daemon.socket, str(daemon.project), *TOOLS, stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    said = {(await client.stdout.readline()).decode().strip() for _ in TOOLS}
    assert said == set(TOOLS)
    await all_are_there()
    client.kill()
    await client.wait()

    assert_all_stopped(await outcomes_by_the_daemon(daemon, TOOLS), cause="client_gone")
    assert bearing(*MARKS) == []


# Tools that leave processes behind, on purpose and well.

GRANDCHILDREN = 50

CROWD = f"""{HEAD}
@tool(timeout=30)
def crowd(ending: str, context: ToolContext) -> str:
    mark("{CROWDED}")
    ready, done = os.pipe()
    for runner in range(2):
        daemonise(done, hop)
    for number in range({GRANDCHILDREN}):
        daemonise(done, linger, stopped=number % 5 == 0)
        context.progress(number)
    for _ in range(2 + {GRANDCHILDREN}):
        os.read(ready, 1)
        context.progress(1)
    context.update("They are there.")
    while not os.path.exists("go"):
        context.progress(1)
        time.sleep(0.01)
    if ending == "wait":
        time.sleep(60)
    if ending == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    return "returned"

def daemonise(done, become, **how):
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in set(range(1, 65)) - {{32, 33, signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM}}:
        signal.signal(number, signal.SIG_IGN)
    try:
        become(time.monotonic() + 8, done, **how)
    finally:
        os._exit(0)

def hop(deadline, done):
    # Never the same process twice: who reads a list of processes and kills them comes too late.
    os.write(done, b".")
    while time.monotonic() < deadline:
        if os.fork():
            os._exit(0)

def linger(deadline, done, stopped):
    os.write(done, b".")
    if stopped:
        os.kill(os.getpid(), signal.SIGSTOP)
    while time.monotonic() < deadline:
        time.sleep(deadline - time.monotonic())
"""


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "kind", "cause"),
    [
        ("abort", Kind.aborted, "client"),
        ("idle", Kind.timed_out, "idle"),
        ("return", Kind.ok, None),
        ("crash", Kind.crashed, "SIGKILL"),
    ],
)
async def test_chains_and_daemonised_grandchildren_are_gone_when_the_call_has_ended(
    daemon: RunningDaemon, ending: str, kind: Kind, cause: str | None
) -> None:
    daemon.tool("crowd", CROWD)
    # Those that the two chains leave behind wait for their reaper, which others keep from the processor.
    daemon.configure("[tool.crowd]\nprocesses = 1000\n")

    async with daemon.connect() as session:
        call = session.call(
            "crowd",
            {"ending": "wait" if ending in ("abort", "idle") else ending},
            limits={"idle": 3} if ending == "idle" else None,  # while they come it gives signs of life
        )
        await until_there(call)
        # The worker and the grandchildren; of the two chains one may be between two processes.
        assert len(bearing(CROWDED)) >= 1 + GRANDCHILDREN
        if ending == "abort":
            call.abort()
        (daemon.project / "go").touch()
        outcome = await call
        left = bearing(CROWDED)

    assert left == [], outcome
    assert (outcome.kind, outcome.cause) == (kind, cause), outcome.message
    if outcome.ok:
        assert outcome.facts.leftover_processes > 0


async def until_there(call: Call) -> None:
    async for event in call:
        if isinstance(event, Update):
            return
    pytest.fail(f"it ended before it was there: {call.outcome}")


LATE_HEARER = """
import signal, time
from toolcell import ToolContext, tool

@tool
def late_hearer(context: ToolContext) -> None:
    # A signal that is lost, as one is that comes between the look for signals and the system call that sleeps.
    heard = signal.signal(signal.SIGRTMIN + 1, signal.SIG_IGN)
    context.update("there")
    while not context.directory.joinpath("aborted").exists():
        time.sleep(0.001)
    signal.signal(signal.SIGRTMIN + 1, heard)
    time.sleep(60)
"""


async def test_a_signal_that_is_lost_is_sent_again(daemon: RunningDaemon) -> None:
    daemon.config.write_text(daemon.config.read_text() + '[daemon]\nabort_grace = "20s"\n')
    daemon.reload()
    daemon.tool("late_hearer", LATE_HEARER)
    async with daemon.connect() as session:
        call = session.call("late_hearer")
        async for event in call:
            if isinstance(event, Update):
                call.abort()
                async with daemon.operate() as operator:
                    request = operator_pb2.GetCallRequest(call_id=call.id)
                    while (await operator.ask(operator.operator.GetCall, request)).call.state != "aborting":
                        await asyncio.sleep(0)
                (daemon.project / "aborted").touch()
        outcome = await call
    assert (outcome.kind, outcome.stopped) == (Kind.aborted, "settled")
