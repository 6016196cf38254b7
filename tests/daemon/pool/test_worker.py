"""The start of a worker ends with a result for any frames that the worker sends."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.cell.cell import Cell
from toolcelld.cell.exit import CellExit
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.worker import CallListener, Worker
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.protocol.messages import CallContext, CallHeader, ToWorker
from toolcelld.sandbox.policy import OPEN, CellLimits

pytestmark = pytest.mark.anyio

FILE = ToolFile("/t.py", "project", "local", "t", b"", "digest", "/")
CONTEXT: CallContext = {
    "session_id": "", "message_id": "", "call_id": "", "agent": "", "agent_name": "", "directory": "", "worktree": "",
}  # fmt: skip
DEATH = CellExit(0, 0.0, 0, 0, "landlock", "")


class FakeCell:
    """A cell without output, which ends at once when it is told to."""

    def __init__(self, worker: Worker) -> None:
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[CellExit] = self.loop.create_future()
        self.sent: list[str] = []
        self.channel = self
        self.stdio = self
        self.processes = self
        self.is_ending = False
        self._worker = worker
        self.tails: dict[str, bytes] = {}
        self.tail = {"stderr": "\n".join(map(str, range(9)))}.__getitem__

    def send(self, message: ToWorker | CallHeader, payload: bytes = b"") -> None:
        self.sent.append(message["type"] if isinstance(message, dict) else message.type)

    def abort(self, sequence: int, reason: str) -> None:
        """The worker ends on its own."""

    def limit(self, limits: CellLimits) -> None:
        """The cell has no cgroup."""

    def receive_sockets(self, on_socket: object) -> None:
        """The cell has no network."""

    def drain(self) -> None:
        """Nothing was printed."""

    def end(self) -> None:
        self.is_ending = True
        self.die(DEATH)

    def die(self, death: CellExit) -> None:
        if not self.ended.done():
            self.ended.set_result(death)

    def fail(self, error: FrameError) -> None:
        self._worker.on_broken(error)
        self.end()


class FakePrefork:
    """Hands out one cell, whose worker sends the given frames once it is taken, and ends then unless it stays."""

    tmpdirs = None

    def __init__(self, *frames: Frame, stays: bool = False) -> None:
        self._frames = frames
        self._stays = stays

    async def take(self, worker: Worker) -> Cell:
        cell = FakeCell(worker)
        for frame in self._frames:
            cell.loop.call_soon(worker.on_frame, frame)
        if not self._stays:
            cell.loop.call_soon(
                cell.loop.call_soon, cell.end
            )  # ends the cell if the frames did not settle the start
        return cast("Cell", cell)


async def start(*frames: Frame) -> Description:
    worker = Worker("w-1", CellSpec(FILE, "/", (), CellLimits(), OPEN), lambda _: None)
    try:
        return await worker.start(
            cast("PreforkedCells", FakePrefork(*frames)), load_seconds=10, describe=True
        )
    finally:
        await worker.end()
        await asyncio.sleep(0)
        assert worker.state is WorkerState.DEAD


def described(payload: bytes, *, size: object = None) -> Frame:
    return Frame({"type": "loaded"} if size is None else {"type": "loaded", "size": size}, payload)


async def test_a_description_may_come_in_chunks() -> None:
    payload = json.dumps({"tools": [], "problems": [{"tool": "x", "message": "bad", "line": 3}]}).encode()
    chunk = Frame({"type": "chunk"}, payload[5:])
    description = await start(described(payload[:5], size=len(payload)), chunk)
    assert [problem.line for problem in description.problems] == [3]


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        ([], "exit"),
        ([Frame({"type": "nonsense"}, b"")], "protocol"),
        ([Frame({"type": "chunk"}, b"x")], "protocol"),
        ([described(b"ab", size=3), Frame({"type": "chunk"}, b"cd")], "protocol"),
        ([Frame({"type": "hello", "protocol": 1, "pid": 1, "python": "3"}, b"")] * 101, "protocol"),
        ([Frame({"type": "imported", "files": {}}, b"")] * 501, "protocol"),
        ([described(b"a", size=200), *[Frame({"type": "chunk"}, b"b")] * 100], "protocol"),
        ([described(b"ab", size=1)], "describe"),
        ([described(b"", size=-1)], "describe"),
        ([described(b"", size=2**40)], "describe"),
        ([described(b"{")], "describe"),
        ([described(b'{"problems":[{"tool":"x","message":"","line":-1}]}')], "describe"),
        ([Frame({"type": "failed", "message": "limits"}, b"")], "setup"),
        ([Frame({"type": "broken", "stage": "import", "message": "no", "line": 3}, b"")], "import"),
    ],
)
async def test_a_failed_start_has_the_stage_that_failed(said: list[Frame], stage: str) -> None:
    with pytest.raises(StartFailed) as caught:
        await start(*said)
    assert caught.value.stage == stage
    assert caught.value.message


JSON: st.SearchStrategy[Any] = (
    st.none() | st.integers() | st.text() | st.just("a\ud800") | st.lists(st.integers())
)


CAUSES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "stage": st.sampled_from(["syntax", "import", "exit", "describe"]),
        "message": st.text() | st.just("a\ud800"),
    },
    optional={"line": st.integers(0, 2**31 - 1), "module": st.text(max_size=300)},
)


@given(CAUSES | st.dictionaries(st.sampled_from(["stage", "message", "line", "module"]), JSON))
async def test_the_cause_of_a_broken_file_is_text_with_a_line(header: dict[str, Any]) -> None:
    with pytest.raises(StartFailed) as caught:
        await start(Frame({"type": "broken", **header}, b""))
    failure = caught.value
    assert 0 <= failure.line < 2**31
    for text in (failure.stage, failure.message, failure.missing_module):
        text.encode()


class Listener:
    """A call that reports nothing."""

    has_reported = False

    def __getattr__(self, name: str) -> Callable[..., bool]:
        return lambda *_: False


@pytest.mark.parametrize(
    ("ended_by_us", "signal_number", "cause"),
    [
        (True, signal.SIGKILL, ""),
        (False, signal.SIGKILL, "SIGKILL"),
        (True, signal.SIGSEGV, "SIGSEGV"),  # it had crashed when it was ended
    ],
)
async def test_a_worker_that_the_daemon_ends_in_its_call_has_not_crashed(
    ended_by_us: bool, signal_number: int, cause: str
) -> None:
    worker = Worker("w-1", CellSpec(FILE, "/", (), CellLimits(), OPEN), lambda _: None)
    await worker.start(cast("PreforkedCells", FakePrefork(described(b"{}"), stays=True)), load_seconds=10)
    worker.fire(WorkerEvent.LEASE)
    worker.begin("t", b"{}", CONTEXT, cast("CallListener", Listener()))
    cell = cast("FakeCell", worker.cell)
    cell.is_ending = ended_by_us
    cell.die(CellExit(int(signal_number), 0.0, 0, 0, "landlock", ""))
    await asyncio.sleep(0)
    assert worker.state is WorkerState.DEAD
    assert (worker.crash_cause, bool(worker.certificate)) == (cause, bool(cause))


async def test_what_a_file_printed_before_it_ended_its_process_is_told() -> None:
    with pytest.raises(StartFailed) as caught:
        await start(Frame({"type": "broken", "stage": "exit", "message": "called exit(1)"}, b""))
    assert caught.value.message.splitlines() == ["called exit(1)", *map(str, range(4, 9))]
