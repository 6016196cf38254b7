"""Runs a function that is not a tool, a hook or a handler of session events, and reads what it returns.

The worker is leased from the pool as that of any tool, and reused. The cell of a hook that exceeds its time, asks a
question or breaks the protocol is ended. What a hook prints is not kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolcell._results.json_value import from_json
from toolcell._results.normalise import NO_OUTPUT
from toolcelld.catalog.hooks import Hook
from toolcelld.cell.exit import CellExit
from toolcelld.cell.stdio import Source
from toolcelld.errors import Refusal
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.network.refusals import RefusedHost
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.worker import Worker
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import CallContext, ResultMessage, TextPart, from_worker

if TYPE_CHECKING:
    from toolcelld.pool.fair_queue import Places
    from toolcelld.pool.pool import Pool

RESULT_BYTES_MAX: Final = 4 * 2**20
"""Of what a hook returns; the most text that a model reads of one call is half of it twice, as text and as details."""
QUEUE_SECONDS_MAX: Final = 30.0
"""For a worker of a hook to be free or started."""
REASON_CHARACTERS_MAX: Final = 2000


class BoundHook(NamedTuple):
    """A hook with the cell that it has for the calls of one tool in one session."""

    hook: Hook
    spec: CellSpec | None  # None for one that cannot be used


class HookFailed(Exception):
    """A hook failed; the text is the reason."""


class HookRefused(Exception):
    """A hook that raised an exception; the text is its own.

    Args:
        text: The text.
        missing: The module that it could not import; empty by default.
    """

    def __init__(self, text: str, missing: str = "") -> None:
        super().__init__(text)
        self.missing = missing


class FunctionResult(NamedTuple):
    """What a worker has sent as the result of a function."""

    message: ResultMessage
    payload: bytes


class FunctionListener:
    """Receives what the worker sends for one run of a function that is not a tool."""

    def __init__(self, sequence: int) -> None:
        self.result: asyncio.Future[FunctionResult] = asyncio.get_running_loop().create_future()
        self._sequence = sequence
        self._message: ResultMessage | None = None
        self._payload = bytearray()
        self._size = 0

    @property
    def has_reported(self) -> bool:
        return self._message is not None

    def on_frame(self, frame: Frame) -> None:
        header, payload = frame
        kind = header["type"]
        if self.result.done() or (kind != "chunk" and header.get("seq") != self._sequence):
            return
        if kind in ("ask", "request"):
            self.fail("it asks a question, which only a call can do")
        elif kind == "result" and self._message is None:
            try:
                message = from_worker(header)
            except FrameError as error:
                self.fail(str(error))
                return
            assert isinstance(message, ResultMessage)
            self._message = message
            self._size = len(payload) if message.size is None else message.size
            self._add(payload)
        elif kind == "chunk" and self._message is not None:
            self._add(payload)

    def _add(self, payload: bytes) -> None:
        if self._size > RESULT_BYTES_MAX or len(self._payload) + len(payload) > self._size:
            self.fail(f"it returned {self._size} bytes; the most is {RESULT_BYTES_MAX}")
            return
        self._payload += payload
        if len(self._payload) == self._size and self._message is not None:
            self.result.set_result(FunctionResult(self._message, bytes(self._payload)))

    def fail(self, why: str) -> None:
        if not self.result.done():
            self.result.set_exception(HookFailed(why))

    def on_output(self, source: Source, data: bytes) -> bool:  # the output of a hook is dropped
        return False

    def on_broken(self, error: FrameError) -> None:
        self.fail(f"its worker sent what is no frame ({error})")

    def on_refused(self, refused: RefusedHost) -> None:
        pass  # its own exception has what it could not reach

    def on_death(self, cell_exit: CellExit) -> None:
        self.fail(f"its process ended: {cell_exit.cause()}")


async def run_hook(
    pool: Pool, places: Places, bound: BoundHook, function: str, arguments: bytes, context: CallContext
) -> Any:
    """Run a function of a hook.

    Args:
        pool: Where its worker is leased.
        places: Those of the session for hooks.
        function: "before" or "after".
        arguments: JSON, an object.
        context: The facts of the call that it is run for.

    Returns:
        What it returned, as read from JSON; None if it returned nothing.

    Raises:
        HookRefused: It raised an exception.
        HookFailed: It could not be run, or did not return in time.
    """
    if bound.spec is None:
        raise HookFailed(f"{bound.hook.problem}; mend it, then: toolcell reload")
    export, seconds = bound.hook.functions[function], bound.hook.section.timeout_seconds
    return await run_export(pool, places, bound.spec, export, arguments, context, seconds)


async def run_export(
    pool: Pool,
    places: Places,
    spec: CellSpec,
    export: str,
    arguments: bytes,
    context: CallContext,
    seconds: float,
) -> Any:
    """Run an export that is not a tool, in at most `seconds`; see `run_hook`."""
    worker = await _lease(pool, places, spec)
    clean = False
    try:
        listener = FunctionListener(worker.calls + 1)
        result = await result_of(worker, listener, export, arguments, context, seconds)
        worker.cell.stdio.drain()
        clean = not result.message.threads and worker.cell.processes.is_clear()
    finally:
        _give_back(pool, places, worker, clean=clean)
    return value_of(result)


async def result_of(
    worker: Worker,
    listener: FunctionListener,
    export: str,
    arguments: bytes,
    context: CallContext,
    seconds: float,
) -> FunctionResult:
    """Run an export in a leased worker, in at most `seconds`; the caller ends the worker, or gives it back. Raises `HookFailed`."""
    try:
        try:
            worker.begin(export, arguments, context, listener)
        except FrameError as error:
            raise HookFailed(f"the call cannot be sent to it: {error}") from error
        async with asyncio.timeout(seconds):
            return await listener.result
    except TimeoutError:
        raise HookFailed(f"it did not return within {seconds:g} s") from None
    finally:
        if listener.result.done() and not listener.result.cancelled():
            listener.result.exception()  # it may have failed after the time had passed


async def _lease(pool: Pool, places: Places, spec: CellSpec) -> Worker:
    row = pool.row(spec)
    if (worker := pool.lease_now(row, places)) is not None:
        return worker
    try:
        lease = pool.lease(row, places, QUEUE_SECONDS_MAX)
    except Refusal as refusal:
        raise HookFailed(refusal.message) from refusal
    try:
        return await asyncio.shield(lease.granted)
    except Refusal as refusal:
        raise HookFailed(refusal.message) from refusal
    except StartFailed as failure:
        raise HookFailed(failure.message) from failure
    except asyncio.CancelledError:
        pool.withdraw(lease)
        raise


def _give_back(pool: Pool, places: Places, worker: Worker, *, clean: bool) -> None:
    if clean and worker.state in (WorkerState.BUSY, WorkerState.LAST):
        pool.give_back(worker, WorkerEvent.DONE, places)
        return
    pool.give_place(places)
    worker.listener = None
    if worker.state is not WorkerState.DEAD:
        worker.cell.end()


def value_of(result: FunctionResult) -> Any:
    """Return the value of a result, as read from JSON. Raises `HookRefused` and `HookFailed`."""
    message, payload = result
    if any(not isinstance(block, TextPart) for block in message.blocks):
        raise HookFailed("it returned an image or a file")
    length = sum(block.bytes for block in message.blocks if isinstance(block, TextPart))
    text = payload[:length].decode(errors="replace")
    if message.kind != "ok":
        said = text.strip()[:REASON_CHARACTERS_MAX] or "without a reason"
        raise HookRefused(said, message.missing or "")
    if message.details is None:
        if text != NO_OUTPUT:
            raise HookFailed("it returned a text; return None or a dict")
        return None
    try:
        return from_json(payload[length : length + message.details])
    except ValueError as error:
        raise HookFailed("what it returned is no JSON") from error
