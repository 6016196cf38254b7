"""The daemon's side of a worker: a cell that has loaded one tool file and runs one call at a time.

While the file is loaded, the worker's frames and output go to a `Startup`. The worker is IDLE when it has confirmed
that the file is loaded. While it has a call, its frames and output go only to that call's `CallListener`.

Every step of its life can be interrupted by its end, so they are all here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from toolcelld import linux
from toolcelld.catalog.describing.description import Description
from toolcelld.cell.cell import Cell, Receiver
from toolcelld.cell.exit import CellExit
from toolcelld.cell.processes.usage import passed
from toolcelld.cell.stdio import Source
from toolcelld.cell.tmpdir import TemporaryDirectories
from toolcelld.cell.zygote import ZygoteFailed
from toolcelld.environments.builder import BuildError
from toolcelld.lifecycle import WORKER, StateMachine, WorkerEvent, WorkerState
from toolcelld.network.egress import Egress
from toolcelld.network.refusals import RefusedHost
from toolcelld.output.redaction import Redactor
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.secrets import SecretError
from toolcelld.pool.certificate import ABORT, certificate
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.startup import StartFailed, Startup
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import (
    CallContext,
    CallHeader,
    ImportedMessage,
    RetireMessage,
    from_worker,
)

if TYPE_CHECKING:
    from toolcelld.pool.idle import IdleRow

logger = logging.getLogger(__name__)

SURVEY_SECONDS_MAX: Final = 1.0
"""A keeper answers within a fraction of a millisecond; after this time its answer counts as unknown."""
IMPORTED_MAX: Final = 500
"""Files of the project that are looked at before a call; the worker reports no more."""
STAGES: Final[Mapping[type[Exception], str]] = {
    ZygoteFailed: "spawn",
    BuildError: "environment",
    SecretError: "secrets",
    OSError: "spawn",
}
"""What can fail before there is a cell, and the stage of the start that this is."""


class CallListener(Protocol):
    """The callbacks of a worker to its call. They are called on the loop and must not block."""

    def on_frame(self, frame: Frame) -> None:
        """The worker sent a frame about the call."""
        ...

    def on_output(self, source: Source, data: bytes) -> bool:
        """The tool wrote output. Return True to pause reading until the cell's `stdio.resume`."""
        ...

    def on_broken(self, error: FrameError) -> None:
        """The worker broke the protocol; its cell is being ended."""
        ...

    def on_refused(self, refused: RefusedHost) -> None:
        """The tool asked for a host that is not granted; called once for each such host."""
        ...

    def on_death(self, cell_exit: CellExit) -> None:
        """The cell has ended."""
        ...

    @property
    def has_reported(self) -> bool:
        """Whether the result of the call is complete."""
        ...


class Worker(StateMachine[WorkerState, WorkerEvent], Receiver):
    """A cell, its file, and its state. The pool fires all events except HELLO and EXIT.

    Args:
        worker_id: Its name in logs and lists.
        spec: The file and the settings of the cell.
        on_change: Called when it has a process, has loaded its file, is to exit, and has ended.
        prepare: Builds the environment that a spec with requirements needs, and returns the spec with it.
    """

    table = WORKER
    state = WorkerState.STARTING
    announced = frozenset({WorkerState.STOPPING, WorkerState.DEAD})
    cell: Cell
    """Its cell; only for a worker that has been started."""
    several = False
    """Whether it may take several calls at once; of the class."""
    others = 0
    """The calls that have a place in it besides the one that made it BUSY; only the pool changes this."""

    def __init__(
        self,
        worker_id: str,
        spec: CellSpec,
        on_change: Callable[[Worker], None],
        prepare: Callable[[CellSpec], Awaitable[CellSpec]] | None = None,
    ) -> None:
        self.id = worker_id
        self.spec = spec
        self.started_at = time.time()
        self.since = self.started_at  # it has been idle, or has had its call
        self.started = time.monotonic()
        self.calls = 0
        self.call_id = self.tool = self.session_id = ""  # of the call that it has
        self.description: Description | None = None
        self.printed = b""  # while the file was loaded
        self._cell: Cell | None = None  # until it is started; then `cell`
        self.listener: CallListener | None = None  # receives the frames of its call
        self.row: IdleRow | None = None  # of the pool that has it
        self._startup: Startup | None = None
        self.layers: tuple[str, ...] = ()  # of its confinement, as it reported them
        self.forks = False  # whether it is a template, which forks a process for each call
        self.is_forking = False  # a template, which still forks the process of the next call
        self._held: tuple[CallHeader, bytes] | None = None  # a call that waits for it
        self._gone: asyncio.Future[bool] | None = None  # whether that of the running call left nothing behind
        self._tmpdirs: TemporaryDirectories | None = None
        self.tmpdir = ""  # the path of its own one inside the cell; empty where it has none
        self.egress: Egress | None = None  # where it may reach some hosts only
        self.crash_cause = ""  # the cause of its crash, where its tool caused it
        self.crash_stderr = ""
        self.certificate = ""  # of its death, where there is something to certify
        self._evidence = self._stuck = ""
        self.exit: CellExit | None = None  # how its cell ended
        self._broke_protocol = False
        self._imports = 0  # messages about imported files
        self.imported: dict[str, int] = {}  # files of the project: path below it, and the time of the version
        self._on_change = on_change
        self._prepare = prepare
        self._retire_timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        """Its pid; 0 while it starts."""
        return self._cell.processes.worker_pid if self._cell is not None else 0

    @property
    def keeper_pid(self) -> int:
        """Its keeper's pid; 0 while it starts."""
        return self._cell.processes.keeper_pid if self._cell is not None else 0

    @property
    def listeners(self) -> tuple[CallListener, ...]:
        """Those of the calls that it has, the oldest first."""
        return () if self.listener is None else (self.listener,)

    def on_state(self) -> None:
        self._on_change(self)

    # Starting

    async def start(
        self, prefork: PreforkedCells, *, load_seconds: float, describe: bool = False
    ) -> Description:
        """Take a cell and load the file into it.

        Args:
            prefork: Where the cell is taken from.
            load_seconds: After this time loading is aborted, and the failure has the line that was reached.
            describe: Whether to return the description of its tools; else, the default, an empty one, because
                building schemas takes as long as everything else.

        Raises:
            StartFailed: The worker cannot be started; its cell has ended.
        """
        startup = self._startup = Startup()
        spec, secrets = await self._take_cell(prefork)
        try:
            become = self._set_up(spec, secrets, prefork.tmpdirs)
            self.description = await startup.load(
                self.cell, spec, become, load_seconds=load_seconds, describe=describe
            )
        except StartFailed:
            if startup.stuck:
                self.crash_cause = "deadline"
            await self.end()
            raise
        except OSError as error:
            await self.end()
            raise StartFailed("spawn", str(error)) from error
        except BaseException:
            await self.end()
            raise
        finally:
            self.layers, self.printed = startup.layers, startup.printed
            self._take(startup)
            self._startup = None
        if self.state is WorkerState.STARTING:
            self.fire(WorkerEvent.HELLO)
            self._on_change(self)
        return self.description

    def _take(self, startup: Startup) -> None:
        """Take what a worker of another kind has reported of itself."""

    async def _take_cell(self, prefork: PreforkedCells) -> tuple[CellSpec, Mapping[str, str]]:
        """Take a cell; return its specification, with the environment that was built for it, and its secrets."""
        spec = self.spec
        try:
            if spec.requirements and self._prepare is not None:
                spec = await self._prepare(spec)
            secrets = await spec.secrets.read() if spec.secrets else {}
            self._cell = self.cell = await prefork.take(self)
        except tuple(STAGES) as failure:
            self.fire(WorkerEvent.EXIT)
            stage = next(stage for kind, stage in STAGES.items() if isinstance(failure, kind))
            raise StartFailed(stage, str(failure)) from failure
        except BaseException:
            self.fire(WorkerEvent.EXIT)
            raise
        self._cell.ended.add_done_callback(self._on_ended)
        self._on_change(self)  # it has a pid now
        return spec, secrets

    def _set_up(self, spec: CellSpec, secrets: Mapping[str, str], tmpdirs: TemporaryDirectories) -> bytes:
        """Prepare what the cell gets from the daemon; return the payload of its `become` message."""
        cell = self.cell
        cell.processes.has_server = spec.is_server
        cell.processes.has_engine = spec.interpreter is not None and bool(spec.interpreter.engine)
        try:
            self._make_tmpdir(tmpdirs)
        except OSError as error:
            raise StartFailed("spawn", f"it has no temporary directory: {error}") from error
        if spec.policy.network == "proxy":
            redactor = Redactor(secrets.values()) if secrets else None
            self.egress = Egress(
                spec.policy.hosts,
                f"{self.id} {spec.file.stem}",
                self._on_refused,
                redactor.text if redactor is not None else str,
            )
        cell.receive_sockets(self.egress.serve if self.egress is not None else None)
        memory_held = cell.limit(spec.limits)
        if secrets:
            cell.redact(Redactor(secrets.values()))
        return spec.setup_message(self.tmpdir, secrets, memory_held=memory_held)

    def _make_tmpdir(self, tmpdirs: TemporaryDirectories) -> None:
        """Make its temporary directory; a strict cell has a /tmp of its own, which ends with it."""
        match self.spec.policy.enclosure:
            case "strict":
                self.tmpdir = "/tmp"  # noqa: S108  # of the cell alone
            case "baseline":
                self._tmpdirs, self.tmpdir = tmpdirs, tmpdirs.make()
            case "none":
                pass

    async def end(self) -> CellExit:
        """End the cell now, and wait until it is empty. If the wait is cancelled, the cell ends nevertheless."""
        self.cell.end()
        return await asyncio.shield(self.cell.ended)

    def retire(self, grace_seconds: float) -> None:
        """Ask an idle worker to exit, which runs its `atexit` functions; end the cell after `grace_seconds`."""
        if self._cell is None or self._cell.ended.done() or self._retire_timer is not None:
            return
        self._cell.channel.send(RetireMessage())
        self._retire_timer = self._cell.loop.call_later(grace_seconds, self._cell.end)

    def end_for_limit(self, limit: str, text: str) -> None:
        """End the cell because its tool passed a limit, `text` says how far; this counts as a crash that the tool caused."""
        if not self.crash_cause:
            self.crash_cause, self._evidence = limit, text
        self.cell.end()

    def end_stuck(self, text: str) -> None:
        """End the cell because its call does not stop; `text` says for how long."""
        self._stuck = text
        self.cell.end()

    def fail_over_limit(self, limit: str, text: str) -> None:
        """End a worker that passed a limit while its file is loaded; its start fails with the message.

        Args:
            limit: The key of the limit.
            text: How far it was passed.
        """
        if self._startup is not None and not self._startup.over:
            message = (
                f"{text}, while it was loaded. The limit is `{limit}`, in its [tool.…] or in [defaults]."
            )
            self._startup.fail(StartFailed("limit", message))
            if self.spec.lowered:
                self.cell.end()
            else:
                self.end_for_limit(limit, text)

    # Calling

    def begin(self, tool: str, arguments: bytes, context: CallContext, listener: CallListener) -> int:
        """Send a call to the worker.

        Args:
            tool: The name of the function in the file.
            arguments: JSON, an object.
            context: What the tool can read about its call.
            listener: Receives its frames and output.

        Returns:
            The call's number in this worker.
        """
        self.calls += 1
        self.since = time.time()
        # The output in the pipes now was written before the call, maybe in the call of another session.
        cell = self.cell
        cell.stdio.drain()
        cell.stdio.tails.clear()
        self.listener = listener
        if self.forks:
            self._gone = cell.loop.create_future()
        message: CallHeader = {"type": "call", "seq": self.calls, "tool": tool, "context": context}
        if self.is_forking:
            self._held = message, arguments  # its process has to be known before it can exit
        else:
            cell.channel.send(message, arguments)
        if cell.ended.done():  # between the lease and now; `_on_ended` had no listener to notify
            cell.loop.call_soon(listener.on_death, cell.ended.result())
        return self.calls

    async def is_gone(self, seconds: float, *, end: bool = True) -> bool:
        """Wait until the process of the call has exited; return whether nothing of the call is left in the cell.

        Args:
            seconds: How long its exit functions may take.
            end: Whether the cell is ended after that.
        """
        gone = self._gone
        assert gone is not None
        done, _ = await asyncio.wait(
            (gone, self.cell.ended), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if not done and end:
            await self.end()
        return gone.done() and gone.result()

    async def count_leftovers(self) -> int:
        """Return the number of processes besides the worker; -1 if the keeper does not answer in time."""
        answer = self.cell.count_leftovers()
        timeout = self.cell.loop.call_later(SURVEY_SECONDS_MAX, _answer_unknown, answer)
        try:
            count = await answer
            # The processes of the next call are none of the tool's.
            return max(0, count - self.cell.processes.forked) if count > 0 else count
        finally:
            timeout.cancel()

    # From the cell

    def on_frame(self, frame: Frame) -> None:
        kind = frame.header["type"]
        if kind == "imported":
            self._on_imported(frame)
        elif kind == "gone" and self._gone is not None:
            self._on_gone(frame, self._gone)
        elif kind == "hello" and self.is_forking:
            self._on_forked()
        elif self.listener is not None:
            self.listener.on_frame(frame)
        elif self._startup is not None:
            self._startup.on_frame(self.cell, frame)
            if self._startup.forks and self.spec.fresh and not self.forks:
                self.forks = self.is_forking = True

    def _on_imported(self, frame: Frame) -> None:
        try:
            message = from_worker(frame.header)
        except FrameError as error:
            self.cell.channel.fail(error)
            return
        self._imports += 1
        if self._imports > IMPORTED_MAX:
            self.cell.channel.fail(FrameError("more files were imported than a worker reports"))
        elif isinstance(message, ImportedMessage) and len(self.imported) + len(message.files) <= IMPORTED_MAX:
            self.imported |= message.files

    def _on_gone(self, frame: Frame, gone: asyncio.Future[bool]) -> None:
        listener = self.listener
        if frame.header.get("seq") != self.calls or gone.done():
            self.cell.channel.fail(FrameError("it says that the process of another call is gone"))
        elif listener is not None and not listener.has_reported:
            self.cell.channel.fail(FrameError("the process of the call exited as if it had reported"))
        else:
            # Now: the next frame can be of the next process.
            gone.set_result(self.cell.processes.is_forked_gone())
            self.is_forking = True

    def _on_forked(self) -> None:
        """Take the process of the next call, and send the call that waits for it."""
        self.is_forking = False
        self.cell.processes.take_forked()
        if (held := self._held) is not None:
            self._held = None
            self.cell.channel.send(*held)

    @property
    def is_current(self) -> bool:
        """Whether the files of the project that it has imported are still the same."""
        return not self.imported or linux.unchanged_below(self.spec.project, self.imported)

    def on_output(self, source: Source, data: bytes) -> bool:
        if self.listener is not None:
            return self.listener.on_output(source, data)
        if self._startup is not None:
            self._startup.on_output(source, data)
        return False

    def on_broken(self, error: FrameError) -> None:
        self._broke_protocol = True
        if self.listener is not None:
            self.listener.on_broken(error)
        elif self._startup is not None:
            self._startup.on_broken(error)

    def _on_refused(self, refused: RefusedHost) -> None:
        if self.listener is not None:
            self.listener.on_refused(refused)
        else:
            logger.info("%s %s, outside of a call: %s", self.id, self.spec.file.stem, refused.why)

    def _on_ended(self, ended: asyncio.Future[CellExit]) -> None:
        cell_exit = self.exit = ended.result()
        self.crash_cause = self.crash_cause or self._cause_of_crash(cell_exit)
        self.crash_stderr = cell_exit.stderr
        if self.crash_cause:
            self.certificate = certificate(self.crash_cause, self._evidence, cell_exit)
        elif self._stuck:
            self.certificate = certificate(ABORT, self._stuck, cell_exit)
        if self._retire_timer is not None:
            self._retire_timer.cancel()
        if cell_exit.out_of_memory:
            used, limit = cell_exit.memory_peak_bytes, self.spec.limits.memory_bytes or 0
            self.fail_over_limit(
                "memory", passed("memory", used, limit, time.time() - self.started_at, cell_exit.usage)
            )
        if self._startup is not None:
            self._startup.on_exit(cell_exit)
        if self.egress is not None:
            self.egress.close()
        if self._tmpdirs is not None:
            self._tmpdirs.remove(self.tmpdir)
        self.fire(WorkerEvent.EXIT)
        if self.listener is not None:
            self.listener.on_death(cell_exit)

    def _cause_of_crash(self, cell_exit: CellExit) -> str:
        """Return the cause of a crash during loading or a call; empty if the daemon ended the cell or the cause is unknown."""
        loading = (
            self.state is WorkerState.STARTING
            and self._startup is not None
            and (self._broke_protocol or not self._startup.over)
        )
        calling = self.state in (WorkerState.BUSY, WorkerState.LAST) and bool(self.listeners)
        if not (loading or calling):
            return ""
        if cell_exit.out_of_memory:  # the kernel kills the keeper too, so the worker's status is unknown
            return "" if self.spec.lowered else "memory"
        if cell_exit.status is None:
            return ""
        if self._broke_protocol:
            return "protocol"
        cause = cell_exit.cause()
        return "" if cause == "SIGKILL" and self.cell.is_ending else cause

    def __repr__(self) -> str:
        return f"<Worker {self.id} {self.spec.file.stem} {self.state.upper()} after {self.calls} calls>"


def _answer_unknown(answer: asyncio.Future[int]) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        answer.set_result(-1)
