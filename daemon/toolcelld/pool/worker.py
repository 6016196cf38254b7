"""A worker as the daemon sees it: a cell that has loaded one tool file and runs one call at a time.

While its file is loaded, what it says and prints goes to a `Startup`. Then the worker is IDLE because
it said so. While it has a call, its frames go to that call's `Listener`; what it prints goes there
too, and to nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from toolcelld.catalog.description import Description
from toolcelld.cell.cell import Cell, Receiver
from toolcelld.cell.exit import CellExit
from toolcelld.cell.stdio import Source
from toolcelld.cell.tmpdir import TemporaryDirectories
from toolcelld.cell.usage import passed
from toolcelld.cell.zygote import ZygoteFailed
from toolcelld.lifecycle import WORKER, Machine, WorkerEvent, WorkerState
from toolcelld.output.redaction import Redactor
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.egress_proxy import EgressProxy
from toolcelld.policy.secrets import SecretError
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.startup import StartFailed, Startup
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import BecomeMessage, CallContext, CallMessage, LoadMessage, RetireMessage

__all__ = ["Invocation", "Listener", "Worker"]

LOAD_GRACE_SECONDS: Final = 1.0
"""For a worker that was told to stop loading to say where it stood."""
SURVEY_SECONDS_MAX: Final = 1.0
"""A keeper answers within a fraction of a millisecond; one that does not is not believed."""
LOADING: Final = 0
"""The sequence number of loading; calls begin at 1."""


class Invocation(NamedTuple):
    """One call as the worker is told of it."""

    tool: str
    arguments: bytes
    context: CallContext


class Listener(Protocol):
    """A call, as its worker sees it. Called on the loop; must not block."""

    def on_frame(self, frame: Frame) -> None:
        """The worker says something about the call."""
        ...

    def on_output(self, source: Source, data: bytes) -> bool:
        """The tool printed; True asks to read no more until the cell's `resume_output`."""
        ...

    def on_broken(self, error: FrameError) -> None:
        """The worker broke the protocol; its cell is being ended."""
        ...

    def on_death(self, death: CellExit) -> None:
        """The cell has ended."""
        ...


class Worker(Receiver):
    """A cell, its file, and its state. Only the pool fires its events, but for HELLO and EXIT."""

    def __init__(self, worker_id: str, spec: CellSpec, on_change: Callable[[Worker], None]) -> None:
        self.id = worker_id
        self.spec = spec
        self.machine = Machine(WORKER, WorkerState.STARTING)
        self.started_at = self.since = time.time()
        self.started = time.monotonic()
        self.calls = 0
        self.call_id = ""
        self.description: Description | None = None
        self.printed = b""  # while it loaded
        self._cell: Cell | None = None
        self._listener: Listener | None = None
        self._loading: Startup | None = None
        self.layers: tuple[str, ...] = ()  # of its confinement, as it reported them
        self._scratch: TemporaryDirectories | None = None
        self._scratch_path = ""
        self._proxy: EgressProxy | None = None
        self.died_of = ""  # what it died of, where that was its tool's own doing
        self.last_words = ""
        self._broke_protocol = False
        self._on_change = on_change
        self._retiring: asyncio.TimerHandle | None = None

    @property
    def state(self) -> WorkerState:
        """Where it is."""
        return self.machine.state

    @property
    def cell(self) -> Cell:
        """Its cell; only for a worker that has been started."""
        assert self._cell is not None
        return self._cell

    @property
    def pid(self) -> int:
        """Its process; 0 while it starts."""
        return self._cell.worker_pid if self._cell is not None else 0

    @property
    def keeper_pid(self) -> int:
        """Its keeper's process; 0 while it starts."""
        return self._cell.keeper_pid if self._cell is not None else 0

    @property
    def scratch_path(self) -> str:
        """Its private temporary directory, as it sees it; empty where it has none."""
        return self._scratch_path

    def fire(self, event: WorkerEvent) -> None:
        """Move to the next state."""
        self.machine.fire(event)
        self.since = time.time()
        self._on_change(self)

    # Starting

    async def start(
        self, blanks: PreforkedCells, *, load_seconds: float, describe: bool = False
    ) -> Description:
        """Take a cell and load the file into it; raises `StartFailed`, and then the cell is gone.

        Loading that takes longer than `load_seconds` is aborted, and the failure says where it stood.
        The description is empty unless it is asked for: making schemas takes as long as all the rest.
        """
        loop = asyncio.get_running_loop()
        self._loading = Startup()
        file = self.spec.file
        try:
            secrets = await self.spec.secrets.read() if self.spec.secrets else {}
            self._cell = await blanks.take(self)
        except ZygoteFailed as failure:
            self.fire(WorkerEvent.EXIT)
            raise StartFailed("spawn", str(failure)) from failure
        except SecretError as error:
            self.fire(WorkerEvent.EXIT)
            raise StartFailed("secrets", str(error)) from error
        except BaseException:
            self.fire(WorkerEvent.EXIT)
            raise
        self._cell.ended.add_done_callback(self._on_ended)
        self._on_change(self)  # it has a cell
        try:
            self._take_scratch(blanks.scratch)
        except OSError as error:
            await self.end()
            raise StartFailed("spawn", f"it has no temporary directory: {error}") from error
        if self.spec.policy.network == "proxy":
            self._proxy = EgressProxy(self.spec.policy.hosts, f"{self.id} {file.stem}")
            self._cell.await_listener(self._proxy.start)
        held = self._cell.limit(self.spec.limits)
        if secrets:
            self._cell.conceal(Redactor(secrets.values()))
        self._cell.wire.send(BecomeMessage(), self.spec.wish(self._scratch_path, secrets, memory_held=held))
        self._cell.wire.send(
            LoadMessage(
                path=file.path,
                stem=file.stem,
                directory=file.directory,
                package=file.path.endswith("/__init__.py"),
                describe=describe,
            ),
            file.content,
        )
        deadline = loop.call_later(load_seconds, self._cell.abort, LOADING, f"{load_seconds:g} s")
        try:
            async with asyncio.timeout(load_seconds + LOAD_GRACE_SECONDS):
                self.description = await self._loading.loaded
        except TimeoutError:
            self.died_of = "deadline"
            await self.end()
            raise StartFailed(
                "deadline", f"still loading after {load_seconds:g} s, and it does not stop"
            ) from None
        except BaseException:
            await self.end()
            raise
        finally:
            deadline.cancel()
            self.layers, self.printed = self._loading.layers, self._loading.printed
            self._loading = None
        if self.state is WorkerState.STARTING:
            self.fire(WorkerEvent.HELLO)
        return self.description

    def _take_scratch(self, scratch: TemporaryDirectories) -> None:
        """Have a temporary directory of its own; a strict cell has its own /tmp, which goes with it."""
        match self.spec.policy.enclosure:
            case "strict":
                self._scratch_path = "/tmp"  # noqa: S108  # of the cell alone
            case "baseline":
                self._scratch, self._scratch_path = scratch, scratch.make()
            case "none":
                pass

    async def end(self) -> CellExit:
        """End the cell now, and wait until it is empty. A second cancellation leaves it to the keeper."""
        self.cell.end()
        return await asyncio.shield(self.cell.ended)

    def retire(self, grace_seconds: float) -> None:
        """Ask an idle worker to exit, with its `atexit` run; after the grace the cell is ended."""
        if self._cell is None or self._cell.ended.done() or self._retiring is not None:
            return
        self._cell.wire.send(RetireMessage())
        self._retiring = self._cell.loop.call_later(grace_seconds, self._cell.end)

    def end_over(self, limit: str) -> None:
        """End the cell for a limit that its tool passed, which is the tool's own doing."""
        self.died_of = self.died_of or limit
        self.cell.end()

    def overran(self, limit: str, text: str) -> None:
        """It passed a limit while it loads: end it, and have its start fail with that."""
        if self._loading is not None and not self._loading.over:
            message = (
                f"{text}, while it was loaded. The limit is `{limit}`, in its [tool.…] or in [defaults]."
            )
            self._loading.fail(StartFailed("limit", message))
            if self.spec.lowered:
                self.cell.end()
            else:
                self.end_over(limit)

    # Calling

    def begin(self, invocation: Invocation, listener: Listener) -> int:
        """Hand it a call; the answer is the call's number in this worker."""
        self.calls += 1
        # What is in the pipes was printed before, maybe for another session.
        self.cell.begin_call()
        self._listener = listener
        self.cell.wire.send(
            CallMessage(seq=self.calls, tool=invocation.tool, context=invocation.context),
            invocation.arguments,
        )
        if self.cell.ended.done():  # after it was granted and before it was used; no other end will be told
            self.cell.loop.call_soon(listener.on_death, self.cell.ended.result())
        return self.calls

    def release(self) -> None:
        """The call is over: nothing of it is listened to any more."""
        self._listener = None

    async def survey(self) -> int:
        """Processes besides the worker; -1 when the keeper does not say."""
        answer = self.cell.survey()
        guard = self.cell.loop.call_later(SURVEY_SECONDS_MAX, _give_up, answer)
        try:
            return await answer
        finally:
            guard.cancel()

    # From the cell

    def on_frame(self, frame: Frame) -> None:
        if self._listener is not None:
            self._listener.on_frame(frame)
        elif self._loading is not None:
            self._loading.on_frame(self.cell, frame)

    def on_output(self, source: Source, data: bytes) -> bool:
        if self._listener is not None:
            return self._listener.on_output(source, data)
        if self._loading is not None:
            self._loading.on_output(source, data)
        return False

    def on_broken(self, error: FrameError) -> None:
        self._broke_protocol = True
        if self._listener is not None:
            self._listener.on_broken(error)
        elif self._loading is not None:
            self._loading.on_broken(error)

    def _on_ended(self, ended: asyncio.Future[CellExit]) -> None:
        death = ended.result()
        self.died_of = self.died_of or self._own_doing(death)
        self.last_words = death.stderr
        if self._retiring is not None:
            self._retiring.cancel()
        if death.out_of_memory:
            used, limit = death.memory_peak_bytes, self.spec.limits.memory_bytes or 0
            self.overran("memory", passed("memory", used, limit, time.time() - self.started_at, death.usage))
        if self._loading is not None:
            self._loading.on_death(death)
        if self._proxy is not None:
            self._proxy.close()
        if self._scratch is not None:
            self._scratch.remove(self._scratch_path)
        self.fire(WorkerEvent.EXIT)
        if self._listener is not None:
            self._listener.on_death(death)

    def _own_doing(self, death: CellExit) -> str:
        """What a worker died of in the midst of its work; nothing where we ended it, or where the cell was lost."""
        loading = (
            self.state is WorkerState.STARTING
            and self._loading is not None
            and (self._broke_protocol or not self._loading.over)
        )
        calling = self.state in (WorkerState.BUSY, WorkerState.LAST) and self._listener is not None
        if not (loading or calling):
            return ""
        if death.out_of_memory:  # the kernel ends the keeper too, so nobody can say how the worker died
            return "" if self.spec.lowered else "memory"
        if death.status is None:
            return ""
        return "protocol" if self._broke_protocol else death.cause()

    def __repr__(self) -> str:
        return f"<Worker {self.id} {self.spec.file.stem} {self.state.upper()} after {self.calls} calls>"


def _give_up(answer: asyncio.Future[int]) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        answer.set_result(-1)
