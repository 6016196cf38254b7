"""What a tool says through its context, and how it hears of its abort."""

import asyncio
import concurrent.futures
import json
import logging
import math
import signal
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import anyio.lowlevel
import pytest

from toolcell import Abort, Denied, ToolContext, ToolError
from toolcell._context.logs import TEXT_BYTES_MAX, LogHandler
from toolcell.testing import Asked, FakeContext, Logged, Progressed, Requested

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Wire:
    """A channel that keeps what would be sent, and leaves its questions open."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Mapping[str, Any], bytes]] = []
        self.questions: list[concurrent.futures.Future[Mapping[str, Any]]] = []

    def tell(self, kind: str, header: Mapping[str, Any], payload: bytes = b"", /) -> None:
        json.dumps(header, allow_nan=False)
        self.told.append((kind, header, payload))

    def ask(
        self, header: Mapping[str, Any], payload: bytes = b"", kind: Literal["ask", "request"] = "ask", /
    ) -> concurrent.futures.Future[Mapping[str, Any]]:
        self.told.append((kind, header, payload))
        self.questions.append(concurrent.futures.Future())
        return self.questions[-1]

    def wait(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        return asyncio.run(coroutine)


def context_on(wire: Wire) -> ToolContext:
    return ToolContext(
        wire,
        session_id="s",
        message_id="m",
        call_id="c",
        agent="claude",
        agent_name="main",
        directory="/tmp",
        worktree="/",
    )


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_a_context_knows_its_call() -> None:
    context = context_on(Wire())
    assert (context.session_id, context.message_id, context.call_id) == ("s", "m", "c")
    assert (context.agent, context.agent_name) == ("claude", "main")
    assert (context.directory, context.worktree) == (Path("/tmp"), Path("/"))
    assert not context.abort


def test_what_is_told_is_what_the_wire_carries() -> None:
    wire = Wire()
    context = context_on(wire)
    context.update({"rows": 3}, details={"n": 1})
    context.progress(1, 2, "half")
    context.progress(3)
    context.metadata("Title", rows=3)
    context.metadata(more=True)
    assert wire.told == [
        ("update", {}, b'{"content":[{"type":"text","text":"{\\"rows\\":3}"}],"details":{"n":1}}'),
        ("progress", {"done": 1.0, "total": 2.0, "message": "half"}, b""),
        ("progress", {"done": 3.0, "total": None, "message": ""}, b""),
        ("metadata", {"title": "Title"}, b'{"rows":3}'),
        ("metadata", {}, b'{"more":true}'),
    ]


@pytest.mark.parametrize("odd", [math.nan, math.inf, object(), Hostile(), "\ud800", 10**400, None, b"\xff"])
def test_telling_never_raises_whatever_it_is_told(odd: Any) -> None:
    wire = Wire()
    context = context_on(wire)
    context.update(odd, details=odd)
    context.progress(odd, odd, odd)
    context.metadata(odd, value=odd)
    assert [kind for kind, _, _ in wire.told] == ["update", "progress", "metadata"]
    for _, _, payload in wire.told:
        assert not payload or json.loads(payload)


def test_logging_arrives_with_its_level_and_its_traceback() -> None:
    wire = Wire()
    context = context_on(wire)
    registered = dict(logging.Logger.manager.loggerDict)
    context.log.debug("n is %d", 3)
    context.log.critical("stop")
    try:
        raise ValueError("x")
    except ValueError:
        context.log.exception("failed")
    levels = [(header["level"], header["text"].splitlines()[0]) for _, header, _ in wire.told]
    assert levels == [("debug", "n is 3"), ("error", "stop"), ("error", "failed")]
    assert wire.told[2][1]["text"].endswith("ValueError: x")
    assert logging.Logger.manager.loggerDict == registered, "the registry keeps its loggers for ever"


def test_a_log_line_is_cut_at_the_wires_bound() -> None:
    wire = Wire()
    context_on(wire).log.info("é" * 100_000)
    text = wire.told[0][1]["text"]
    assert len(text.encode()) <= TEXT_BYTES_MAX
    assert text.endswith("é […200000 bytes]")


def test_a_record_that_cannot_be_formatted_does_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    wire = Wire()
    context_on(wire).log.info("%d", "x")
    assert wire.told == []


def test_the_handler_serves_loggers_of_libraries_as_well() -> None:
    wire = Wire()
    LogHandler(wire).handle(logging.makeLogRecord({"levelno": logging.WARNING, "msg": "w"}))
    assert wire.told == [("log", {"level": "warning", "text": "w"}, b"")]


async def test_a_question_waits_for_its_answer() -> None:
    wire = Wire()
    context = context_on(wire)
    async with anyio.create_task_group() as group:

        async def answer() -> None:
            while not wire.questions:
                await anyio.lowlevel.checkpoint()
            wire.questions[0].set_result({"allowed": True, "always": False, "message": ""})

        group.start_soon(answer)
        await context.ask("Really?", permission="edit", patterns=["a"], always=["*"], details={"n": 1})
    assert wire.told == [
        ("ask", {"question": "Really?", "permission": "edit", "patterns": ["a"], "always": ["*"]}, b'{"n":1}')
    ]


async def test_a_cancelled_question_is_withdrawn() -> None:
    wire = Wire()
    asking = asyncio.ensure_future(context_on(wire).ask("Really?"))
    while not wire.questions:
        await anyio.lowlevel.checkpoint()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert wire.questions[0].cancelled()


async def test_a_refusal_is_denied_with_the_words_of_who_refused() -> None:
    with pytest.raises(Denied, match="Denied: Really"):
        await FakeContext().ask("Really?")
    wire = Wire()
    asking = asyncio.ensure_future(context_on(wire).ask("Really?"))
    while not wire.questions:
        await anyio.lowlevel.checkpoint()
    wire.questions[0].set_result({"allowed": False, "always": False, "message": "not on Fridays"})
    with pytest.raises(Denied, match="not on Fridays"):
        await asking


async def test_a_question_has_bounds() -> None:
    with pytest.raises(ToolError, match="at most"):
        await FakeContext(answers=[True]).ask("?", patterns=["x"] * 101)


async def test_a_request_brings_what_the_service_gives_or_its_reason() -> None:
    wire = Wire()
    requesting = asyncio.ensure_future(context_on(wire).request("session.send", prompt="hi"))
    while not wire.questions:
        await anyio.lowlevel.checkpoint()
    assert wire.told == [("request", {"service": "session.send"}, b'{"prompt":"hi"}')]
    wire.questions[0].set_result({"result": b'{"reply": "hello"}', "message": ""})
    assert await requesting == {"reply": "hello"}

    requesting = asyncio.ensure_future(context_on(wire).request("session.send", prompt="hi"))
    while len(wire.questions) < 2:
        await anyio.lowlevel.checkpoint()
    wire.questions[1].set_result({"result": b"", "message": "claude offers none"})
    with pytest.raises(ToolError, match=r"session\.send: claude offers none"):
        await requesting


async def test_arguments_of_a_request_that_have_no_json_form_are_refused_at_once() -> None:
    wire = Wire()
    with pytest.raises(ToolError, match="no JSON form"):
        await context_on(wire).request("session.send", prompt=object())
    assert wire.told == []


async def test_a_fake_context_serves_what_the_test_gives_it() -> None:
    def twice(n: int) -> int:
        return 2 * n

    def fail() -> None:
        raise OSError("gone")

    context = FakeContext(services={"twice": twice, "fail": fail})
    assert await context.request("twice", n=4) == 8
    with pytest.raises(ToolError, match="fail: OSError: gone"):
        await context.request("fail")
    with pytest.raises(ToolError, match="test offers no service 'other'"):
        await context.request("other")
    assert context.requested == [Requested("twice", {"n": 4}), Requested("fail", {}), Requested("other", {})]


async def test_waiting_in_an_asynchronous_tool_says_to_await() -> None:
    context = FakeContext(answers=[True])
    with pytest.raises(RuntimeError, match="await it instead"):
        context.wait(context.ask("Really?"))


def test_a_synchronous_tool_asks_through_wait() -> None:
    context = FakeContext(answers=[True, "always"])
    context.wait(context.ask("One?"))
    context.wait(context.ask("Two?", patterns=["t"], details=[1]))
    with pytest.raises(Denied):
        context.wait(context.ask("Three?"))
    assert context.asked == [
        Asked("One?", "", [], [], None),
        Asked("Two?", "", ["t"], [], [1]),
        Asked("Three?", "", [], [], None),
    ]


def test_a_fake_context_keeps_what_it_was_told(tmp_path: Path) -> None:
    context = FakeContext(directory=tmp_path)
    context.update("half")
    context.update(["whole"])
    context.progress(1, 2, "m")
    context.metadata("T", a=1)
    context.metadata(b=2)
    context.log.info("line")
    assert context.updates == ["half", ["whole"]]
    assert context.progressed == [Progressed(1, 2, "m")]
    assert (context.title, context.values) == ("T", {"a": 1, "b": 2})
    assert context.logs == [Logged("info", "line")]
    assert context.directory == context.worktree == tmp_path


async def test_whoever_waits_for_the_abort_hears_of_it() -> None:
    abort = Abort()
    async with anyio.create_task_group() as group:
        group.start_soon(abort.wait)
        group.start_soon(abort.wait)
        await anyio.lowlevel.checkpoint()
        abort._set("by the user")  # pyright: ignore[reportPrivateUsage]  as the worker does
    await abort.wait()
    assert abort
    assert abort.reason == "by the user"
    abort._set("again")  # pyright: ignore[reportPrivateUsage]  as above
    assert abort.reason == "by the user"


async def test_a_waiter_that_was_cancelled_is_forgotten() -> None:
    abort = Abort()
    with anyio.move_on_after(0):
        await abort.wait()
    abort._set("late")  # pyright: ignore[reportPrivateUsage]  as the worker does
    assert abort._waiters == []  # pyright: ignore[reportPrivateUsage]  what would leak


@pytest.fixture
def alarm() -> Iterator[Abort]:
    """An abort that SIGUSR1 sets, as the worker's signal does."""
    abort = Abort()

    def on_signal(_number: int, _frame: object) -> None:
        abort._set("signal")  # pyright: ignore[reportPrivateUsage]  as the worker does

    before = signal.signal(signal.SIGUSR1, on_signal)
    yield abort
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_wakes_waiters_on_another_threads_loop(alarm: Abort) -> None:
    waiting = threading.Event()

    async def wait() -> None:
        asyncio.get_running_loop().call_soon(waiting.set)
        await alarm.wait()

    thread = threading.Thread(target=asyncio.run, args=(wait(),), daemon=True)
    thread.start()
    assert waiting.wait(30)
    signal.raise_signal(signal.SIGUSR1)
    thread.join(30)
    assert not thread.is_alive()
    assert alarm.reason == "signal"
