"""A daemon whose sessions, calls, pool and streams are the real ones, and whose cells do what a test says.

The streams are those of the service for agents, without gRPC around them: a test reads what a client would read, and
breaks a line at the moment that it chooses. Time passes when the test says so (`Stage.pass_seconds`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import grpc.aio
import pytest

from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.calls.call import Call
from toolcelld.calls.functions.hook_run import BoundHook
from toolcelld.calls.request import Plan
from toolcelld.catalog.catalog import Catalog, ToolInfo
from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.directory import Pin
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.catalog.hooks import Hook
from toolcelld.cell.exit import CellExit
from toolcelld.config.load import Config
from toolcelld.config.permissions import Rule
from toolcelld.config.resolution.settings import resolve
from toolcelld.config.schema import HookSection
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.event_log import Broadcast, OperatorEvent
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.pool import Pool
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.worker import Worker
from toolcelld.protocol.frames import Frame
from toolcelld.protocol.messages import AnswerMessage, ReplyMessage, RetireMessage
from toolcelld.rpc.agent_service import ToolCell
from toolcelld.sandbox.policy import OPEN, CellLimits
from toolcelld.sessions import registry as registry_module
from toolcelld.sessions import session as session_module
from toolcelld.sessions.caller import AGENT, Caller
from toolcelld.sessions.registry import Sessions
from toolcelld.sessions.session import Session

__all__ = ["CALLS_PER_SESSION", "LINGER_SECONDS", "STATES", "Cell", "Line", "Stage", "staged"]

CALLS_PER_SESSION = 3
LINGER_SECONDS = 10.0
MOMENTS = 25
"""More turns of the loop than anything here takes from its cause to its last effect."""
TOOLS = ("runs", "obeys", "queues", "asks", "asks again", "requests", "asked", "hooked", "withheld")
STATES = (*TOOLS, "undescribed")
"""Where a call of each gets to, and stays:

runs        it runs, and ignores aborts
obeys       it runs, and ends when it is aborted
queues      its worker does not come
asks        it has a question open; it ends with its answer
asks again  it has a question open; with each answer that allows it, it asks another one
requests    it has a service request open; it ends with the reply
asked       a permission rule has a person asked before it runs
hooked      a hook runs before it
withheld    it has reported, and a hook runs after it
undescribed it waits for a file that is still being described
"""


class Cell:
    """The cell of a worker, and every part of it that the daemon uses."""

    redactor = None
    worker_pid = keeper_pid = 0  # of no process, so that nobody looks at it

    def __init__(self, worker: StagedWorker) -> None:
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[CellExit] = self.loop.create_future()
        self.channel = self.stdio = self.processes = self
        self.answers: list[int] = []
        self.tails: dict[str, bytes] = {}
        self._worker = worker
        self._sequence, self._tool = 0, ""

    def send(self, message: object, _: bytes = b"") -> None:
        match message:
            case {"type": "call", "seq": int() as sequence, "tool": str() as tool}:
                self._sequence, self._tool = sequence, tool
                self.answers.clear()
                self.loop.call_soon(self._run)
            case AnswerMessage(ask=number) | ReplyMessage(ask=number):
                assert number not in self.answers, "a question was answered twice"
                self.answers.append(number)
                if isinstance(message, AnswerMessage) and message.allowed and self._tool == "asks again":
                    self.loop.call_soon(self._ask, number + 1)
                else:
                    self.loop.call_soon(self.report)
            case RetireMessage():
                self.end()
            case _:
                raise AssertionError(message)

    def _run(self) -> None:
        if self._tool in ("asks", "asks again"):
            self._ask(1)
        elif self._tool == "requests":
            header = {"type": "request", "seq": self._sequence, "ask": 1, "service": "ui"}
            self._worker.on_frame(Frame(header, b"{}"))
        elif self._tool == "withheld":
            self.report()

    def _ask(self, number: int) -> None:
        header = {"type": "ask", "seq": self._sequence, "ask": number, "question": "Go on?"}
        self._worker.on_frame(Frame(header, b""))

    def report(self) -> None:
        """Report the end of the call, if one runs here."""
        blocks = [{"type": "text", "bytes": 4}]
        result: dict[str, Any] = {"kind": "ok", "ran": True, "blocks": blocks}
        result |= {"cpu": 0, "rss": 0, "threads": 0}
        if self._worker.state not in (WorkerState.IDLE, WorkerState.DEAD):
            self._worker.on_frame(Frame({"type": "result", "seq": self._sequence, **result}, b"done"))

    def abort(self, sequence: int, _: str) -> None:
        if self._worker.spec.file.stem != "runs" and sequence == self._sequence:
            self.loop.call_soon(self.report)

    def resend_abort(self) -> None: ...

    def end(self) -> None:
        self.loop.call_soon(self._end)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(CellExit(None, 0, 0, 0, "namespace", ""))

    def fail(self, error: Exception) -> None:
        raise AssertionError(error)

    def drain(self) -> None: ...

    def is_clear(self) -> bool:
        return True


class StagedWorker(Worker):
    """A worker with a cell of the test's; that of the tool `queues` does not start."""

    async def start(
        self, prefork: PreforkedCells, *, load_seconds: float, describe: bool = False
    ) -> Description:
        self._cell = self.cell = cast("Any", Cell(self))
        self.cell.ended.add_done_callback(self._on_ended)
        if self.spec.file.stem == "queues":
            await self.cell.ended
        elif self.state is WorkerState.STARTING:
            self.fire(WorkerEvent.HELLO)
        return Description()


class Line:
    """One stream, in the hands of its client."""

    def __init__(self, service: ToolCell, opening: pb.Open, *, breaks_at_once: bool = False) -> None:
        self._up: asyncio.Queue[object] = asyncio.Queue()
        self.down: list[pb.Event] = []
        self.refusal = ""
        self._broken = breaks_at_once
        self._reads = asyncio.Event()  # whether the client takes what comes
        self._reads.set()
        self._up.put_nowait(pb.AttachRequest(open=opening))
        self.rpc = asyncio.ensure_future(service.Attach(cast("Any", None), self))

    def send(self, **message: Any) -> None:
        self._up.put_nowait(pb.AttachRequest(**message))

    def half_close(self) -> None:
        """Say that nothing more comes, as a client does that leaves."""
        self._up.put_nowait(grpc.aio.EOF)

    def stall(self) -> None:
        """Take nothing any more, as a client does that is stopped or hostile."""
        self._reads.clear()

    def break_off(self) -> None:
        """Take the connection away: gRPC cancels the handler then."""
        self.rpc.cancel()

    # What the service uses

    async def read(self) -> Any:
        return await self._up.get()

    async def write(self, message: pb.AttachResponse) -> None:
        await asyncio.sleep(0)
        if self._broken:
            raise grpc.aio.InternalError("the stream is gone")
        await self._reads.wait()
        self.down.extend(message.events)

    async def abort(self, code: grpc.StatusCode, message: str, **_: Any) -> None:
        self.refusal = message
        raise grpc.aio.AbortError

    @property
    def welcome(self) -> pb.Welcome:
        return next(event.welcome for event in self.down if event.HasField("welcome"))


class Stage:
    """The daemon of one example."""

    def __init__(self, tasks: asyncio.TaskGroup, loop: Any, max_timeout_seconds: float) -> None:
        config = Config()
        self.config = replace(
            config,
            daemon=config.daemon.model_copy(update={"sessions": 1, "calls_per_session": CALLS_PER_SESSION}),
            max=config.max.model_copy(update={"timeout_seconds": max_timeout_seconds}),
        )
        self.tasks = tasks
        self.loop = loop
        self.pool = Pool(
            lambda _: cast("Any", None),
            tasks,
            workers_max=32,
            idle_seconds=1e9,
            grace_seconds=1,
            load_seconds=10,
            make_worker=StagedWorker,
        )
        self.happenings: Broadcast[OperatorEvent] = Broadcast()
        self.packages = SimpleNamespace(preparing={})
        self.spills = self.watch = None
        self.ruleset = self
        self.joined = 0
        self.catalog = Catalog("/p", 1, {name: tool(name) for name in TOOLS}, awaited=frozenset({"/late.py"}))
        self.catalogs = self
        services = cast("Any", self)
        self.sessions = Sessions(services)
        self.sessions.projects = services
        self.sessions.limit_monitor = cast("Any", SimpleNamespace(timer=None, wake=lambda: None))
        self.service = ToolCell(services, self.sessions, cast("Any", SimpleNamespace(caller=self._caller)))
        self.lines: list[Line] = []
        self.seen: set[Session] = set()
        self.calls: set[Call] = set()

    @staticmethod
    def _caller(_: object) -> Caller:
        return AGENT

    # What sessions use of the services of a daemon

    async def open(self, directory: str, **_: Any) -> Any:
        return Pin(cast("Any", self))

    scanned = ()

    def unpin(self, pin: Pin) -> None: ...

    def decision(self, action: str, message: str, **_: str) -> None: ...

    def want(self, path: str) -> None: ...

    def join(self, directory: str, project: Any) -> Any:
        self.joined += 1
        return SimpleNamespace(
            project=project,
            after_call=_nothing_moved,
            before_call=_unchanged,
            catch_up=_unchanged,
            changed=lambda: False,
            is_current=lambda: True,
        )

    def find_project(self, directory: str) -> Any:
        return SimpleNamespace(worktree=directory)

    def leave(self, directory: str) -> None:
        self.joined -= 1

    def log(self, *_: Any) -> None: ...

    # What a test uses

    def attach(
        self, to: Line | None = None, *, answers: bool, services: bool, breaks_at_once: bool = False
    ) -> Line:
        """Open a session, or resume that of an earlier line."""
        opening = pb.Open(
            protocol=1,
            directory="/p",
            answers=answers,
            services=["ui"] * services,
            linger_seconds=LINGER_SECONDS,
        )
        if to is not None:
            opening.session_id, opening.resume_token = to.welcome.session_id, to.welcome.resume_token
        line = Line(self.service, opening, breaks_at_once=breaks_at_once)
        self.lines.append(line)
        return line

    async def settle(self) -> None:
        """Let everything happen that needs no time, and note the sessions and calls that there are."""
        for _ in range(MOMENTS):
            await asyncio.sleep(0)
            for session in self.sessions.all:
                self.seen.add(session)
                self.calls.update(session.calls.values())

    async def pass_seconds(self, seconds: float) -> None:
        """Let timers expire, in their order."""
        self.loop.skew += seconds
        await asyncio.sleep(0.0)
        await self.settle()

    async def leave_all(self) -> None:
        for line in self.lines:
            line.break_off()
            with suppress(asyncio.CancelledError, grpc.aio.AbortError, grpc.aio.InternalError):
                await line.rpc


def _unchanged() -> None:
    """The project is as it was."""


def _nothing_moved(**_: object) -> tuple[()]:
    return ()


def spec(name: str) -> CellSpec:
    file = ToolFile(f"/{name}.py", "project", "local", name, b"", name, "/")
    return CellSpec(file, "/", (), CellLimits(), OPEN)


def tool(name: str) -> ToolInfo:
    return ToolInfo(name, "", b"{}", spec(name).file, name, {})


class _Admission:
    """Admits every tool of the stage."""

    def __init__(self, services: Any, directory: str, watch: object, **_: Any) -> None:
        self._config = services.config
        self._row = services.pool.row

    def offered(self, catalog: Catalog) -> Catalog:
        return catalog

    def note_changes(self, before: Catalog, after: Catalog) -> None: ...

    def plan(self, name: str, catalog: Catalog) -> Plan:
        if name not in catalog.tools:
            raise Refusal(RefusalReason.UNKNOWN_TOOL, "no file has it")
        settings = resolve(self._config, name, {}, "project")
        function = {"hooked": "before", "withheld": "after"}.get(name)
        hooks: tuple[BoundHook, ...] = ()
        if function is not None:
            section = HookSection.model_validate({"file": "/hook.py"})
            hooks = (BoundHook(Hook("h", section, spec("hook").file, {function: "hook"}), spec("hook")),)
        rule = Rule("*", "ask", "/config.toml") if name == "asked" else None
        return Plan(tool(name), settings, settings.limits, self._row(spec(name)), 1, 1.0, hooks, rule)


async def _look(_: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Look at a directory at once: a thread would take a time that no test can tell."""
    return function(*arguments)


@asynccontextmanager
async def staged(max_timeout_seconds: float = 3600.0) -> AsyncGenerator[Stage]:
    """A daemon for one example; at its end every worker ends."""
    with pytest.MonkeyPatch.context() as patch:
        loop: Any = asyncio.get_running_loop()
        real: Callable[[], float] = loop.time
        patch.setattr(loop, "skew", 0.0, raising=False)
        patch.setattr(loop, "time", lambda: real() + loop.skew)
        patch.setattr(session_module, "Admission", _Admission)
        patch.setattr(registry_module, "look", _look)
        async with asyncio.TaskGroup() as tasks:
            stage = Stage(tasks, loop, max_timeout_seconds)
            try:
                yield stage
            finally:
                await stage.leave_all()
                for worker in stage.pool.workers:
                    worker.cell.end()
                await stage.settle()
                await stage.pool.aclose()
