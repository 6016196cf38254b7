"""A worker as the daemon sees it: a cell that has loaded one tool file and runs one call at a time.

Starting one is a race of three: `loaded`, exit, deadline. Each ending has its own message, with
the last lines that were printed. Then the worker is IDLE because it said so. While it has a call,
its frames go to that call's `Listener`; what it prints goes there too, and to nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol, cast

from toolcell._data import whole
from toolcelld.blanks import Blanks
from toolcelld.cells import Cell, Receiver
from toolcelld.death import Death
from toolcelld.description import Description
from toolcelld.frames import Frame, FrameError
from toolcelld.lifecycle import WORKER, Machine, WorkerEvent
from toolcelld.lifecycle import Worker as State
from toolcelld.outcome import passed
from toolcelld.printing import Source
from toolcelld.proxy import Proxy
from toolcelld.redaction import Redaction
from toolcelld.runtimes import RuntimeFailed
from toolcelld.scratch import Scratch
from toolcelld.sources import ToolFile
from toolcelld.vault import NO_SECRETS, Sealed, SecretError
from toolcelld.worker.policy import CellLimits, Policy

__all__ = ["CellSpec", "Invocation", "Listener", "StartFailed", "Worker"]

LOAD_SECONDS_MAX: Final = 10.0
"""Importing a tool file and what it imports; pandas takes one, a cold disk several."""
LOAD_GRACE_SECONDS: Final = 1.0
"""For a worker that was told to stop loading to say where it stood."""
SURVEY_SECONDS_MAX: Final = 1.0
"""A keeper answers within a fraction of a millisecond; one that does not is not believed."""
DESCRIPTION_BYTES_MAX: Final = 4 * 1024 * 1024
"""All tools of one file, as JSON."""
LOADING: Final = 0
"""The sequence number of loading; calls begin at 1."""
ECHO_CHARACTERS_MAX: Final = 200
LAYERS_MAX: Final = 32
LINE_MAX: Final = 2**31


class StartFailed(Exception):
    """A worker could not be started; `stage` says how far it came."""

    def __init__(self, stage: str, message: str, line: int = 0, missing_module: str = "") -> None:
        super().__init__(message)
        self.missing_module = missing_module
        self.stage = stage  # "spawn", "setup", "import", "exit", "deadline", …
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class CellSpec:
    """What makes two cells interchangeable: calls with equal specs may share one."""

    file: ToolFile
    directory: str
    environment: tuple[tuple[str, str], ...]
    limits: CellLimits
    policy: Policy
    owner: str = ""  # the session or the call that it is for, or nobody's
    serial: bool = False  # one worker at most, and its calls in order
    secrets: Sealed = NO_SECRETS  # of which the values are variables of the worker, and of nobody else
    lowered: bool = field(compare=False, default=False)  # whether a call asked for less than its tool may use
    hashed: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        # The content is behind the digest, and hashing it for every call would cost more than the call.
        key = (
            self.file.digest,
            self.directory,
            self.environment,
            self.limits,
            self.policy,
            self.owner,
            self.secrets,
        )
        object.__setattr__(self, "hashed", hash(key))

    def __hash__(self) -> int:
        return self.hashed

    @property
    def once(self) -> bool:
        """Whether it is for one call, and nobody after it."""
        return bool(self.owner) and not self.serial

    def wish(self, scratch: str, secrets: Mapping[str, str], *, memory_held: bool) -> bytes:
        """What the cell is told that it is for, as JSON."""
        return json.dumps(
            {
                "directory": self.directory,
                "environment": {**dict(self.environment), **secrets},
                "limits": asdict(self.limits),
                "memory_held": memory_held,
                "policy": self.policy.to_wire(),
                "scratch": scratch,
            }
        ).encode()


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call as the worker is told of it."""

    tool: str
    arguments: bytes
    context: Mapping[str, str]


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

    def on_death(self, death: Death) -> None:
        """The cell has ended."""
        ...


class Worker(Receiver):
    """A cell, its file, and its state. Only the pool fires its events, but for HELLO and EXIT."""

    def __init__(self, worker_id: str, spec: CellSpec, on_change: Callable[[Worker], None]) -> None:
        self.id = worker_id
        self.spec = spec
        self.machine = Machine(WORKER, State.STARTING)
        self.started_at = self.since = time.time()
        self.started = time.monotonic()
        self.calls = 0
        self.call_id = ""
        self.description: Description | None = None
        self.printed = b""  # while it loaded
        self._cell: Cell | None = None
        self._listener: Listener | None = None
        self._loaded: asyncio.Future[Description] | None = None
        self._body: bytearray | None = None
        self._body_missing = 0
        self.layers: tuple[str, ...] = ()  # of its confinement, as it reported them
        self._scratch: Scratch | None = None
        self._scratch_path = ""
        self._proxy: Proxy | None = None
        self.died_of = ""  # what it died of, where that was its tool's own doing
        self.last_words = ""
        self._broke_protocol = False
        self._on_change = on_change
        self._retiring: asyncio.TimerHandle | None = None

    @property
    def state(self) -> State:
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

    async def start(self, blanks: Blanks, *, describe: bool = False) -> Description:
        """Take a cell and load the file into it; raises `StartFailed`, and then the cell is gone.

        The description is empty unless it is asked for: making schemas takes as long as all the rest.
        """
        loop = asyncio.get_running_loop()
        self._loaded = loop.create_future()
        file = self.spec.file
        try:
            secrets = await self.spec.secrets.read() if self.spec.secrets else {}
            self._cell = await blanks.take(self)
        except RuntimeFailed as failure:
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
            self._proxy = Proxy(self.spec.policy.hosts, f"{self.id} {file.stem}")
            self._cell.await_listener(self._proxy.start)
        held = self._cell.limit(self.spec.limits)
        if secrets:
            self._cell.conceal(Redaction(secrets.values()))
        self._cell.send({"type": "become"}, self.spec.wish(self._scratch_path, secrets, memory_held=held))
        self._cell.send(
            {
                "type": "load",
                "path": file.path,
                "stem": file.stem,
                "directory": file.directory,
                "package": file.path.endswith("/__init__.py"),
                "describe": describe,
            },
            file.content,
        )
        deadline = loop.call_later(LOAD_SECONDS_MAX, self._cell.abort, LOADING, f"{LOAD_SECONDS_MAX:.0f} s")
        try:
            async with asyncio.timeout(LOAD_SECONDS_MAX + LOAD_GRACE_SECONDS):
                self.description = await self._loaded
        except TimeoutError:
            self.died_of = "deadline"
            await self.end()
            raise StartFailed(
                "deadline", f"still loading after {LOAD_SECONDS_MAX:.0f} s, and it does not stop"
            ) from None
        except BaseException:
            await self.end()
            raise
        finally:
            deadline.cancel()
            self._loaded = None
        if self.state is State.STARTING:
            self.fire(WorkerEvent.HELLO)
        return self.description

    def _take_scratch(self, scratch: Scratch) -> None:
        """Have a temporary directory of its own; a strict cell has its own /tmp, which goes with it."""
        match self.spec.policy.enclosure:
            case "strict":
                self._scratch_path = "/tmp"  # noqa: S108  # of the cell alone
            case "baseline":
                self._scratch, self._scratch_path = scratch, scratch.make()
            case "none":
                pass

    async def end(self) -> Death:
        """End the cell now, and wait until it is empty. A second cancellation leaves it to the keeper."""
        self.cell.end()
        return await asyncio.shield(self.cell.ended)

    def retire(self, grace_seconds: float) -> None:
        """Ask an idle worker to exit, with its `atexit` run; after the grace the cell is ended."""
        if self._cell is None or self._cell.ended.done() or self._retiring is not None:
            return
        self._cell.send({"type": "retire"})
        self._retiring = self._cell.loop.call_later(grace_seconds, self._cell.end)

    def end_over(self, limit: str) -> None:
        """End the cell for a limit that its tool passed, which is the tool's own doing."""
        self.died_of = self.died_of or limit
        self.cell.end()

    def overran(self, limit: str, text: str) -> None:
        """It passed a limit while it loads: end it, and have its start fail with that."""
        if self._loaded is not None and not self._loaded.done():
            message = (
                f"{text}, while it was loaded. The limit is `{limit}`, in its [tool.…] or in [defaults]."
            )
            self._loaded.set_exception(StartFailed("limit", message))
            if self.spec.lowered:
                self.cell.end()
            else:
                self.end_over(limit)

    # Calling

    def begin(self, invocation: Invocation, listener: Listener) -> int:
        """Hand it a call; the answer is the call's number in this worker."""
        self.calls += 1
        self._listener = listener
        self.cell.send(
            {"type": "call", "seq": self.calls, "tool": invocation.tool, "context": invocation.context},
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
            return
        loaded = self._loaded
        if loaded is None or loaded.done():
            return  # said after its time: about a call that is over
        header, payload = frame
        match header["type"]:
            case "hello":
                return
            case "loaded":
                size = header.get("size", len(payload))
                if not isinstance(size, int) or not len(payload) <= size <= DESCRIPTION_BYTES_MAX:
                    loaded.set_exception(
                        StartFailed(
                            "describe", f"its tools take more than {DESCRIPTION_BYTES_MAX} bytes to describe"
                        )
                    )
                    self.cell.end()
                    return
                self.layers = _layers(header.get("layers"))
                self._body, self._body_missing = bytearray(payload), size - len(payload)
            case "chunk" if self._body is not None and len(payload) <= self._body_missing:
                self._body += payload
                self._body_missing -= len(payload)
            case "broken":
                loaded.set_exception(_broken(header))
                return
            case "failed":
                message = _text(header.get("message"), 1000)
                loaded.set_exception(StartFailed("setup", f"sandbox_setup_failed: {message}"))
                return
            case unexpected:
                self.cell.break_off(FrameError(f"{str(unexpected)[:40]} while it was loading"))
                return
        if self._body_missing <= 0:
            self._on_described(bytes(self._body), loaded)

    def _on_described(self, body: bytes, loaded: asyncio.Future[Description]) -> None:
        self._body = None
        self.cell.drain()
        try:
            loaded.set_result(Description.from_json(body))
        except ValueError as error:
            loaded.set_exception(StartFailed("describe", f"its tools cannot be read: {str(error)[:200]}"))

    def on_output(self, source: Source, data: bytes) -> bool:
        if self._listener is not None:
            return self._listener.on_output(source, data)
        if self._loaded is not None and source == "stdout":
            self.printed = (self.printed + data)[:ECHO_CHARACTERS_MAX]
        return False

    def on_broken(self, error: FrameError) -> None:
        self._broke_protocol = True
        if self._listener is not None:
            self._listener.on_broken(error)
        elif self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(StartFailed("protocol", f"the worker sent what is no frame: {error}"))

    def _on_ended(self, ended: asyncio.Future[Death]) -> None:
        death = ended.result()
        self.died_of = self.died_of or self._own_doing(death)
        self.last_words = death.stderr
        if self._retiring is not None:
            self._retiring.cancel()
        if death.out_of_memory:
            used, limit = death.memory_peak_bytes, self.spec.limits.memory_bytes or 0
            self.overran("memory", passed("memory", used, limit, time.time() - self.started_at, death.usage))
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(_died_while_loading(death))
        if self._proxy is not None:
            self._proxy.close()
        if self._scratch is not None:
            self._scratch.remove(self._scratch_path)
        self.fire(WorkerEvent.EXIT)
        if self._listener is not None:
            self._listener.on_death(death)

    def _own_doing(self, death: Death) -> str:
        """What a worker died of in the midst of its work; nothing where we ended it, or where the cell was lost."""
        loading = (
            self.state is State.STARTING
            and self._loaded is not None
            and (self._broke_protocol or not self._loaded.done())
        )
        calling = self.state in (State.BUSY, State.LAST) and self._listener is not None
        if not (loading or calling):
            return ""
        if death.out_of_memory:  # the kernel ends the keeper too, so nobody can say how the worker died
            return "" if self.spec.lowered else "memory"
        if death.status is None:
            return ""
        return "protocol" if self._broke_protocol else death.cause()

    def __repr__(self) -> str:
        return f"<Worker {self.id} {self.spec.file.stem} {self.state.upper()} after {self.calls} calls>"


def _broken(header: Mapping[str, Any]) -> StartFailed:
    line = header.get("line")
    return StartFailed(
        _text(header.get("stage"), 40),
        _text(header.get("message"), 4000),
        line if type(line) is int and 0 <= line < LINE_MAX else 0,
        _text(header.get("module"), 200),
    )


def _layers(value: object) -> tuple[str, ...]:
    layers = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(_text(layer, 100) for layer in layers[:LAYERS_MAX])


def _text(value: object, characters_max: int) -> str:
    return whole(value[:characters_max]) if isinstance(value, str) else ""


def _died_while_loading(death: Death) -> StartFailed:
    cause = death.cause()
    how = (
        f"the process exited with status {cause[5:]}"
        if cause.startswith("exit ")
        else f"the process was ended by {cause}"
    )
    lines = [line[:200] for line in death.stderr.strip().splitlines() if line.strip()][-5:]
    return StartFailed("exit", "\n".join([f"{how} while it was loaded", *lines]))


def _give_up(answer: asyncio.Future[int]) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        answer.set_result(-1)
