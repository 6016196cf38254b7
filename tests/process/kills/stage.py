"""A stage: one daemon, and a call in every state at the same time, each waiting for a file.

No state is assumed: the tools report theirs over files, and the daemon is asked whether it sees each call and
each worker in that state. Each call carries a number, which its result must have, so that a result that went
to another call is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.daemons import RunningDaemon
from tests.process.kills.table import STATES
from tests.process.kills.victims import ECHO, STANDING, source

from toolcell.client import Ask, Session
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2
from toolcelld.worker.keeper import children

__all__ = [
    "CONFIG",
    "WAIT_SECONDS_MAX",
    "Caller",
    "Cell",
    "Ending",
    "Stage",
    "a_stage",
    "gone",
    "kind_of",
    "serves",
    "set_stage",
    "until",
]

WAIT_SECONDS_MAX = 40.0
"""For anything that must happen; other tests may use the processors."""

CONFIG = """
[daemon]
calls_per_session = 20
abort_grace = "8s"
load_timeout = "16s"
[defaults]
timeout = "16s"
memory = "128MiB"
[tool.running]
concurrency = 1
"""
"""A call of `running` waits for the one before it; the grace is how long `aborting` and `ending` last at most.
Loading may take as long as a call: the stage stands when all of them do, on a busy machine too.
"""

SEEN = {
    "waiting": ("waiting", "busy"),  # the worker of the call before it
    "starting": ("waiting", "starting"),
    "running": ("running", "busy"),
    "streaming": ("running", "busy"),
    "asking": ("running", "busy"),
    "aborting": ("aborting", "aborting"),
    "ending": ("running", "stopping"),
}
"""The state of the call and of its worker, as the daemon reports them."""


class Ending(NamedTuple):
    """How a call ended, as its caller received it."""

    kind: str
    details: Any
    told: str


class Caller(Protocol):
    """Makes the calls: this process, or one that can be killed."""

    def call(self, tool: str, arguments: dict[str, Any], call_id: str) -> asyncio.Future[Ending]:
        """Start a call."""
        ...


@dataclass(frozen=True)
class Cell:
    """The processes of one cell, by the process ids outside of it."""

    keeper: int
    init: int  # 0 where the cell has none
    worker: int
    grandchild: int

    @property
    def all(self) -> set[int]:
        return {self.keeper, self.worker, self.grandchild} | ({self.init} if self.init else set())

    def process(self, name: str) -> int:
        pid: int = getattr(self, name)
        return pid


class Stage:
    """The calls and their daemon."""

    def __init__(self, daemon: RunningDaemon, caller: Caller, where: Path) -> None:
        self.daemon = daemon
        self.where = where
        self.calls: dict[str, asyncio.Future[Ending]] = {}
        self.numbers = {state: number for number, state in enumerate(STATES, 101)}
        self._caller = caller

    async def stand(self) -> dict[str, Cell]:
        """Bring a call into each state; returns their cells, for the waiting call that of the one it waits for."""
        (self.where / "gate").touch()
        for state in STANDING:
            self._call(state, state)
        await self._until_there(*(f"{state}.stands" for state in STANDING))
        self._call("waiting", "running", here=False)
        await until_async(self._is_known, "waiting")
        await self.abort("aborting")
        (self.where / "ending.stands").unlink()
        (self.where / "end").touch()
        await self._until_there("aborted", "ending.stands")
        cells = await self._cells()
        seen = await self._seen()
        assert seen == SEEN, seen
        return cells

    def _call(self, state: str, tool: str, **arguments: Any) -> None:
        arguments |= {"n": self.numbers[state]}
        self.calls[state] = self._caller.call(tool, arguments, f"call-{state}")

    async def _until_there(self, *marks: str) -> None:
        def there() -> bool:
            early = {state: call.result() for state, call in self.calls.items() if call.done()}
            missing = {mark for mark in marks if not (self.where / mark).exists()}
            assert not early, f"{early} before {missing}"
            return not missing

        await until(there)

    async def _is_known(self, state: str) -> bool:
        return f"call-{state}" in {call.call_id for call in await self.listed()}

    async def abort(self, state: str) -> None:
        """Abort a call as an operator."""
        request = toolcell_pb2.AbortCallRequest(call_id=f"call-{state}", reason="by the test")
        async with self.daemon.operate() as one:
            await one.ask(one.tools.AbortCall, request)

    async def listed(self) -> list[toolcell_pb2.CallInfo]:
        """The calls, ended ones too, as an operator sees them."""
        async with self.daemon.operate() as one:
            calls = (await one.ask(one.operator.ListCalls, op.ListCallsRequest(limit=1000))).calls
        return [call for call in calls if call.call_id.startswith("call-")]

    async def _workers(self) -> dict[str, op.WorkerInfo]:
        async with self.daemon.operate() as one:
            workers = (await one.ask(one.operator.ListWorkers, op.ListWorkersRequest())).workers
        by_state = {Path(worker.path).stem: worker for worker in workers}
        assert len(by_state) == len(workers) == len(STANDING)
        return by_state | {"waiting": by_state["running"]}

    async def _cells(self) -> dict[str, Cell]:
        cells: dict[str, Cell] = {}
        for state, worker in (await self._workers()).items():
            (first,) = children(worker.keeper_pid)
            (grandchild,) = children(worker.pid)
            init = first if first != worker.pid else 0
            cells[state] = Cell(worker.keeper_pid, init, worker.pid, grandchild)
        return cells

    async def _seen(self) -> dict[str, tuple[str, str]]:
        calls = {call.call_id.removeprefix("call-"): call.state for call in await self.listed()}
        workers = await self._workers()
        return {state: (calls[state], workers[state].state) for state in SEEN}

    def go(self) -> None:
        """Let the calls return."""
        (self.where / "go").touch()

    async def ended(self, state: str) -> Ending:
        """The ending of a call; fails if its result is another call's."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            ending = await self.calls[state]
        if ending.kind == "ok":
            assert ending.details == self.numbers[state], f"{state}: the result of another call: {ending}"
        return ending

    async def until_ended(self, but: Collection[str] = ()) -> None:
        """Wait until the daemon reports all calls but these as ended."""

        async def ended() -> bool:
            left = {
                call.call_id.removeprefix("call-") for call in await self.listed() if call.state != "ended"
            }
            return left <= set(but)

        await until_async(ended)

    async def each_ended_once(self) -> None:
        """Fail unless the daemon lists each call once, as ended."""
        listed = await self.listed()
        assert sorted(call.call_id for call in listed) == sorted(f"call-{state}" for state in STATES)
        assert {call.state for call in listed} == {"ended"}


class Here:
    """This process makes the calls."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def call(self, tool: str, arguments: dict[str, Any], call_id: str) -> asyncio.Future[Ending]:
        async def call() -> Ending:
            outcome = await self._session.call(tool, arguments, call_id=call_id)
            return Ending(outcome.kind, outcome.details, outcome.message)

        return asyncio.ensure_future(call())


def set_stage(daemon: RunningDaemon) -> Path:
    """Write the tool files; returns the directory of the files by which they communicate."""
    where = daemon.project / "where"
    where.mkdir()
    for state in STANDING:
        daemon.tool(state, source(state, where))
    daemon.tool("echo", ECHO)
    daemon.describe()
    return where


@contextlib.asynccontextmanager
async def a_stage(daemon: RunningDaemon) -> AsyncGenerator[Stage]:
    """A stage whose calls this process makes."""
    where = set_stage(daemon)

    async def answer(_: Ask) -> bool:
        await until((where / "go").exists)
        return True

    async with daemon.connect(ask=answer, linger=0.2) as session:
        yield Stage(daemon, Here(session), where)


async def until(true: Callable[[], bool]) -> None:
    """Wait for a condition that has no event, within a bound."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def until_async(true: Any, *arguments: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not await true(*arguments):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def serves(daemon: RunningDaemon) -> None:
    """Fail unless the daemon serves the next calls, each with its own result."""
    async with daemon.connect(linger=0.2) as session:
        for n in (1001, 1002):
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                outcome = await session.call("echo", {"n": n})
            assert (outcome.kind, outcome.details) == ("ok", n), outcome


def kind_of(call: toolcell_pb2.CallInfo) -> str:
    """The kind of a listed call's outcome, as the client names it."""
    return toolcell_pb2.OutcomeKind.Name(call.outcome.kind).removeprefix("OUTCOME_KIND_").lower()


def gone(pids: set[int]) -> bool:
    """Whether all of them have ended; zombies have."""
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            if stat.read().rpartition(")")[2].split()[0] not in "ZX":
                return False
    return True
