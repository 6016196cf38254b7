"""A session and its calls on one unbroken line, against a daemon that follows a script."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
import uvloop

from toolcell import Denied
from toolcell.client import (
    Answer,
    Ask,
    Call,
    CallFailed,
    Catalog,
    Kind,
    Log,
    Metadata,
    Progress,
    Refused,
    Started,
    Text,
    Update,
    connect,
)
from toolcell.client._transport import stream
from toolcell.client._transport.receive_buffer import ReceiveBuffer
from toolcell_proto.v1 import toolcell_pb2 as pb

from .scripted import Line, aborted, body, daemon, echo, ok, status, until_closed

pytestmark = pytest.mark.anyio


async def test_a_call_ends_with_the_outcome_that_the_daemon_sent(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        outcome = await session.call("echo", {"a": 1})
        assert (outcome.kind, outcome.text, outcome.ran) == (Kind.ok, '{"a":1}', True)
        assert not session.calls


async def test_a_call_may_be_awaited_as_often_as_one_likes(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("echo")
        first, second = await asyncio.gather(call, call)
        assert first is second is await call


async def test_a_warm_call_costs_one_message_and_acknowledges_the_one_before(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted:
        async with connect(scripted.socket, daemon="running") as session:
            for n in range(50):
                await session.call("echo", {"n": n})
        assert scripted.heard == ["open"] + ["call"] * 50 + ["close"]
        assert scripted.acknowledged == list(range(52))  # event 1 is the catalog


async def test_a_failure_of_ours_in_a_write_ends_the_session_and_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: ReceiveBuffer) -> int:
        raise ArithmeticError("ours")

    async def cannot_write(socket: str) -> None:
        async with connect(socket, daemon="running") as session:
            monkeypatch.setattr(ReceiveBuffer, "acknowledge", broken)
            outcome = await session.call("echo")
            assert (outcome.kind, outcome.cause) == (Kind.internal, "connection_lost")

    async with daemon(tmp_path, echo) as scripted:
        with pytest.raises(ExceptionGroup) as raised:
            await cannot_write(scripted.socket)
        assert raised.group_contains(ArithmeticError, match="ours")


async def test_the_last_outcome_is_acknowledged_without_another_call(tmp_path: Path) -> None:
    acknowledged = asyncio.Event()

    async def script(line: Line) -> None:
        await line.welcome()
        call = await line.hear_call()
        await line.say(ok(call.call_id, "done"))
        waiting = asyncio.create_task(line.hear())
        while "acknowledged" not in scripted.heard:
            await asyncio.wait({waiting}, timeout=0.05)
        acknowledged.set()
        await waiting

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        await session.call("echo")
        await acknowledged.wait()
        assert scripted.acknowledged[-1] == 2


async def test_the_beginning_of_a_call_is_not_acknowledged_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "ACKNOWLEDGE_AFTER_SECONDS", 0.001)
    heard: list[list[str]] = []

    async def script(line: Line) -> None:
        await line.welcome()
        call = await line.hear_call()
        for _ in range(3):
            before = len(scripted.heard)
            hearing = asyncio.create_task(line.hear())
            await line.say(pb.Event(call_id=call.call_id, accepted=pb.Accepted()))
            await line.say(pb.Event(call_id=call.call_id, started=pb.Started()))
            await asyncio.sleep(0.05)  # fifty times as long as an acknowledgement waits
            heard.append(scripted.heard[before:])
            await line.say(ok(call.call_id, "done"))
            if (message := await hearing) is not None:
                call = message.call

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        for _ in range(3):
            await session.call("echo")
    assert heard == [[], [], []]


@pytest.mark.parametrize("size", [48 * 1024 - 9, 48 * 1024 - 8, 96 * 1024, 1_000_000])
async def test_long_arguments_arrive_whole(tmp_path: Path, size: int) -> None:
    async def script(line: Line) -> None:
        await line.welcome()
        call = await line.hear_call()
        arguments = await line.hear_arguments(call)
        await line.say(ok(call.call_id, str(len(arguments))))
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        outcome = await session.call("echo", {"a": "x" * size})
        assert outcome.text == str(size + 8)


async def test_a_small_call_overtakes_the_chunks_of_a_large_one(tmp_path: Path) -> None:
    order: list[str] = []

    async def script(line: Line) -> None:
        await line.welcome()
        large = await line.hear_call()
        while (heard := await line.hear()) is not None and not heard.chunk.last:
            order.append(heard.WhichOneof("message") or "")
        await line.say(ok(large.call_id, ""), ok("small", ""))
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        large = session.call("echo", {"a": "x" * 1_000_000})
        small = session.call("echo", call_id="small")
        await asyncio.gather(large, small)
        assert order.index("call") < 3


async def test_a_result_in_chunks_is_joined_and_not_acknowledged_before_its_end(tmp_path: Path) -> None:
    whole = body("y" * 100_000, details={"n": 1})

    async def script(line: Line) -> None:
        await line.welcome()
        long, other = await line.hear_call(), await line.hear_call()
        head = pb.Outcome(kind=pb.OUTCOME_KIND_OK, body=whole[:40_000], more=True, ran=True)
        await line.say(pb.Event(call_id=long.call_id, outcome=head), ok(other.call_id, "short"))
        third = await line.hear_call()
        assert scripted.acknowledged[-1] == 1, "the head, event 2, is not whole"
        for start in (40_000, 80_000):
            end = start + 40_000
            chunk = pb.Chunk(call_id=long.call_id, data=whole[start:end], last=end >= len(whole))
            await line.say(pb.Event(chunk=chunk))
        await line.say(ok(third.call_id, ""))
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        long, other = session.call("echo"), session.call("echo")
        assert (await other).text == "short"
        await session.call("echo")
        outcome = await long
        assert outcome.content == (Text("y" * 100_000),)
        assert outcome.details == {"n": 1}


async def test_what_a_call_says_is_read_in_order_and_ends_with_the_call(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.welcome()
        name = (await line.hear_call()).call_id
        await line.say(
            pb.Event(call_id=name, accepted=pb.Accepted()),
            pb.Event(call_id=name, started=pb.Started(worker_id="w-1", queue_seconds=0.5)),
            pb.Event(call_id=name, progress=pb.Progress(done=1, total=4, message="one")),
            pb.Event(call_id=name, progress=pb.Progress(done=2)),
            pb.Event(call_id=name, log=pb.Log(source="stdout", text="hello")),
            pb.Event(call_id=name, metadata=pb.Metadata(title="A title", values=b'{"a": 1}')),
            pb.Event(call_id=name, update=pb.Update(body=body("half"))),
            ok(name, "whole"),
        )
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("echo")
        assert [event async for event in call] == [
            Started("w-1", 0.5),
            Progress(1, 4, "one"),
            Progress(2, None, ""),
            Log("", "stdout", "hello"),
            Metadata("A title", {"a": 1}),
            Update((Text("half"),), None),
        ]
        assert (await call).text == "whole"
        with pytest.raises(RuntimeError, match="iterated"):
            aiter(call)


async def test_a_refused_call_is_an_outcome_that_names_the_field_and_the_remedy(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.welcome()
        for code, reason, fields, seconds in (
            (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST", [("call.tool", "is missing")], 0),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "BUSY", [], 3),
        ):
            call = await line.hear_call()
            refusal = status(code, reason, "cannot be served", fields=fields, retry_seconds=seconds)
            await line.say(pb.Event(call_id=call.call_id, refused=refusal))
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        bad = await session.call("")
        assert (bad.kind, bad.cause, bad.ran) == (Kind.refused, "bad_request", False)
        assert "call.tool: is missing" in bad.message
        busy = await session.call("echo")
        assert busy.cause == "busy"
        assert "Try again in 3 s." in busy.message
        with pytest.raises(CallFailed, match=r"refused \(busy\)") as failed:
            busy.check()
        assert failed.value.outcome is busy


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"a": math.nan}, ValueError, "echo.*not JSON"),
        ({"a": object()}, TypeError, "echo.*object is not JSON serializable"),
        ({"a": "\ud800"}, ValueError, "surrogate"),
        ({("a", "b"): 1}, TypeError, "echo.*keys must be"),
    ],
)
async def test_arguments_that_are_no_json_raise_before_anything_is_sent(
    tmp_path: Path, arguments: dict[str, object], error: type[Exception], says: str
) -> None:
    async with daemon(tmp_path, echo) as scripted:
        async with connect(scripted.socket, daemon="running") as session:
            with pytest.raises(error, match=says):
                session.call("echo", arguments)
            assert not session.calls
        assert scripted.heard == ["open", "close"]


async def test_arguments_nested_without_end_raise(tmp_path: Path) -> None:
    nested: list[object] = []
    for _ in range(200_000):
        nested = [nested]
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        with pytest.raises(ValueError, match="nested too deeply"):
            session.call("echo", {"a": nested})


async def test_the_same_call_id_is_the_same_call(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("wait", {"a": 1}, call_id="mine")
        assert session.call("wait", {"a": 1}, call_id="mine") is call
        other = await session.call("wait", {"a": 2}, call_id="mine")
        assert (other.kind, other.cause) == (Kind.refused, "call_exists")
        call.abort("enough")
        assert (await call).message == "enough"
        assert scripted.heard == ["open", "call", "abort"]


async def test_cancelling_whoever_awaits_aborts_and_is_delivered_when_the_tool_has_stopped(
    tmp_path: Path,
) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("wait")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await call
        assert call.outcome is not None
        assert call.outcome.kind is Kind.aborted
        assert call.outcome.stopped == "settled"


async def _read(call: Call) -> None:
    async for _ in call:
        pass


async def test_cancelling_whoever_iterates_aborts_as_well(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("wait")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_read(call), 0.01)
        assert call.outcome is not None
        assert call.outcome.kind is Kind.aborted


async def test_cancelling_the_body_of_an_iteration_leaves_the_call_running(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    async def telling(line: Line) -> None:
        await line.welcome()
        call = await line.hear_call()
        await line.say(pb.Event(call_id=call.call_id, update=pb.Update(body=body("half"))))
        await may_end.wait()
        await line.say(ok(call.call_id, "whole"))
        await until_closed(line)

    async with daemon(tmp_path, telling) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("wait")
        in_body = asyncio.Event()

        async def read() -> None:
            async for _ in call:
                in_body.set()
                await asyncio.Event().wait()

        reading = asyncio.create_task(read())
        await in_body.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        may_end.set()
        assert (await call).text == "whole"


async def test_a_second_cancellation_leaves_at_once(tmp_path: Path) -> None:
    heard_abort, may_end = asyncio.Event(), asyncio.Event()

    async def stubborn(line: Line) -> None:
        await line.welcome()
        call = await line.hear_call()
        heard = await line.hear()
        assert heard is not None
        assert heard.HasField("abort")
        heard_abort.set()
        await may_end.wait()
        await line.say(aborted(call.call_id))
        await until_closed(line)

    async with daemon(tmp_path, stubborn) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("wait")
        waiting = asyncio.ensure_future(call)
        await asyncio.sleep(0)  # it waits now
        waiting.cancel()
        await heard_abort.wait()
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert call.outcome is None
        may_end.set()
        assert (await call).kind is Kind.aborted


async def test_one_cancelled_waiter_of_two_does_not_take_the_outcome_from_the_other(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("wait")
        one, other = asyncio.ensure_future(call), asyncio.ensure_future(call)
        await asyncio.sleep(0)
        one.cancel()
        assert (await other).kind is Kind.aborted
        with pytest.raises(asyncio.CancelledError):
            await one


async def test_asyncio_takes_a_call_as_the_coroutine_of_a_task(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        one = asyncio.create_task(session.call("echo", {"n": 1}), name="one")
        async with asyncio.TaskGroup() as group:
            other = group.create_task(session.call("echo", {"n": 2}))
        assert [(await one).text, (await other).text] == ['{"n":1}', '{"n":2}']
        assert (await asyncio.wait_for(session.call("echo", {"n": 3}), 60)).text == '{"n":3}'
        call = session.call("echo")
        twice = [
            asyncio.create_task(call),
            asyncio.create_task(call),
        ]  # a call may be awaited as often as one likes
        first, second = await asyncio.gather(*twice)
        assert first is second is await call
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.call("wait"), 0.01)
        assert not session.calls


async def test_cancelling_the_task_of_a_call_before_its_first_step_aborts_it(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("wait")
        task = asyncio.create_task(call)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert call.outcome is not None
        assert call.outcome.kind is Kind.aborted


async def test_a_task_group_that_fails_ends_after_its_calls(tmp_path: Path) -> None:
    async def fail() -> None:
        raise ArithmeticError("theirs")

    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        call = session.call("wait")

        async def side_by_side() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(call)
                group.create_task(fail())

        with pytest.raises(ExceptionGroup) as raised:
            await side_by_side()
        assert raised.group_contains(ArithmeticError)
        assert call.outcome is not None
        assert call.outcome.kind is Kind.aborted
        closed = session.call("wait")
        closed.close()  # as a group does with what it no longer starts
        assert (await closed).kind is Kind.aborted


async def _talks(line: Line) -> None:
    """Each call says two things and is ended by its abort, or by itself where it is `short`."""
    await line.welcome()
    while (heard := await line.hear()) is not None:
        if heard.HasField("call"):
            tool, call_id = heard.call.tool, heard.call.call_id
            said = [pb.Event(call_id=call_id, update=pb.Update(body=body(text))) for text in ("a", "b")]
            await line.say(*said, *([ok(call_id, "end")] if tool == "short" else []))
        elif heard.HasField("abort"):
            await line.say(aborted(heard.abort.call_id, heard.abort.reason))
        elif heard.HasField("close"):
            return


async def test_on_event_gets_what_a_call_says_and_its_failure_aborts_the_call(tmp_path: Path) -> None:
    async with daemon(tmp_path, _talks) as scripted, connect(scripted.socket, daemon="running") as session:
        heard: list[object] = []
        call = session.call("short", on_event=heard.append)
        assert (await call).text == "end"
        assert [event.content for event in heard if isinstance(event, Update)] == [(Text("a"),), (Text("b"),)]
        with pytest.raises(RuntimeError, match="only once"):
            call.__aiter__()

        def broken(event: object) -> None:
            heard.append(event)
            raise ArithmeticError("theirs")

        del heard[:]
        call = session.call("wait", on_event=broken)
        for _ in range(2):
            with pytest.raises(ArithmeticError, match="theirs"):
                await call
        assert len(heard) == 1
        assert call.outcome is not None
        assert call.outcome.message == "on_event has failed: ArithmeticError"
        assert (await session.call("short")).ok  # the session goes on

        async def awaited(_: object) -> None: ...

        with pytest.raises(TypeError, match="plain function"):
            session.call("short", on_event=awaited)


async def test_leaving_the_session_waits_for_what_it_aborted(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.welcome()
        call = await line.hear_call()
        heard = await line.hear()
        assert heard is not None
        assert heard.HasField("close")
        await line.say(aborted(call.call_id, "the session was closed"))

    async with daemon(tmp_path, script) as scripted:
        async with connect(scripted.socket, daemon="running") as session:
            call = session.call("wait")
        assert call.outcome is not None
        assert call.outcome.message == "the session was closed"
        late = await session.call("echo")
        assert (late.kind, late.cause, late.ran) == (Kind.refused, "session_closed", False)


async def _yes(ask: Ask) -> Answer:
    assert ask.question == "May I?"
    assert ask.patterns == ("users",)
    assert ask.details == {"rows": 3}
    return True


async def _always(ask: Ask) -> Answer:
    return "always"


async def _no(ask: Ask) -> Answer:
    return False


async def _no_because(ask: Ask) -> Answer:
    raise Denied("too many \ud800 rows" + "." * 2000)  # half a character, which a message has no bytes for


async def _broken(ask: Ask) -> Answer:
    raise LookupError("no dialog here")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (_yes, pb.Answer(allowed=True)),
        (_always, pb.Answer(allowed=True, always=True)),
        (_no, pb.Answer()),
        (_no_because, pb.Answer(message="too many ? rows" + "." * 985)),
        (_broken, pb.Answer(message="the agent could not ask: LookupError: no dialog here")),
    ],
)
async def test_a_question_is_answered_by_the_agent(
    tmp_path: Path, answer: Callable[[Ask], object], expected: pb.Answer
) -> None:
    answers: list[pb.Answer] = []

    async def script(line: Line) -> None:
        assert (await line.welcome()).answers
        call = await line.hear_call()
        ask = pb.Ask(ask_id=7, question="May I?", patterns=["users"], details=b'{"rows": 3}')
        await line.say(pb.Event(call_id=call.call_id, ask=ask))
        heard = await line.hear()
        assert heard is not None
        answers.append(heard.answer)
        await line.say(ok(call.call_id, ""))
        await until_closed(line)

    async with (
        daemon(tmp_path, script) as scripted,
        connect(scripted.socket, daemon="running", ask=answer) as session,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # parametrized
    ):
        call = session.call("drop")
        await call
        expected.call_id, expected.ask_id = call.id, 7
        assert answers == [expected]


async def test_a_question_of_a_call_that_has_ended_is_taken_back(tmp_path: Path) -> None:
    asked = asyncio.Event()
    taken_back: list[str] = []

    async def dialog(ask: Ask) -> Answer:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            taken_back.append(ask.call.id)
        return True

    async def script(line: Line) -> None:
        await line.welcome()
        call = await line.hear_call()
        await line.say(pb.Event(call_id=call.call_id, ask=pb.Ask(ask_id=1)))
        await asked.wait()
        await line.say(aborted(call.call_id))
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted:
        async with connect(scripted.socket, daemon="running", ask=dialog) as session:
            call = session.call("drop")
            await call
        assert taken_back == [call.id]


async def test_without_somebody_to_ask_the_daemon_is_told_so(tmp_path: Path) -> None:
    opened: list[pb.Open] = []

    async def script(line: Line) -> None:
        opened.append(await line.welcome())
        await until_closed(line)

    async with (
        daemon(tmp_path, script) as scripted,
        connect(
            scripted.socket, daemon="running", agent="mine", directory=tmp_path, deny=["x*"], linger=2
        ) as session,
    ):
        assert session.id == "s-1"
        assert session.resume_token == "s-1.secret"
    (opening,) = opened
    assert not opening.answers
    assert not opening.follow
    assert (opening.agent, opening.directory, opening.linger_seconds) == ("mine", str(tmp_path), 2)
    assert (list(opening.allow), list(opening.deny)) == (["*"], ["x*"])


async def test_the_catalog_is_there_at_once_and_a_reload_brings_the_next(tmp_path: Path) -> None:
    seen: list[Catalog] = []
    async with (
        daemon(tmp_path, echo) as scripted,
        connect(scripted.socket, daemon="running", on_catalog=seen.append) as session,
    ):
        assert session.catalog.generation == 1
        assert session.catalog.tools["echo"].input_schema == {"type": "object"}
        scripted.generation = 2
        catalog = await session.reload()
        assert catalog is session.catalog
        assert catalog.generation == 2
        await session.call("echo")
        assert seen == [catalog]


async def test_a_catalog_that_comes_unasked_answers_no_reload(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.welcome()
        await line.hear()
        for generation in (2, 3):
            scripted.generation = generation
            await line.say(line.catalog(answers=generation == 3))
        await until_closed(line)

    seen: list[Catalog] = []
    async with (
        daemon(tmp_path, script) as scripted,
        connect(scripted.socket, daemon="running", on_catalog=seen.append) as session,
    ):
        assert (await session.reload()).generation == 3
        await asyncio.sleep(0)
    assert [catalog.generation for catalog in seen] == [2, 3]


async def test_a_refused_reload_raises(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.welcome()
        await line.hear()
        refusal = status(grpc.StatusCode.UNAVAILABLE, "DRAINING", "the daemon is stopping")
        await line.say(pb.Event(refused=refusal))
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        with pytest.raises(Refused, match="stopping") as refused:
            await session.reload()
        assert refused.value.reason == "draining"


async def test_a_range_of_an_output_is_read(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted, connect(scripted.socket, daemon="running") as session:
        assert await session.read_output("o-1", start=2, length=5) == b"23456"
        with pytest.raises(Refused, match="no output o-2"):
            await session.read_output("o-2")
        with pytest.raises(ValueError, match="length"):
            await session.read_output("o-1", length=0)


async def test_a_result_that_cannot_be_read_ends_its_call_and_no_other(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.welcome()
        first, second = await line.hear_call(), await line.hear_call()
        broken = pb.Outcome(kind=pb.OUTCOME_KIND_OK, body=b"{", ran=True)
        await line.say(pb.Event(call_id=first.call_id, outcome=broken), ok(second.call_id, "fine"))
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        first, second = await asyncio.gather(session.call("echo"), session.call("echo"))
        assert (first.kind, first.cause, first.ran) == (Kind.internal, "unreadable_result", True)
        assert second.ok


async def test_what_the_body_raises_comes_out_as_it_is(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted:
        with pytest.raises(KeyError, match="mine"):
            async with connect(scripted.socket, daemon="running"):
                raise KeyError("mine")


async def test_a_call_that_is_aborted_while_its_arguments_go_up_has_not_begun(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def script(line: Line) -> None:
        await line.welcome()
        await line.hear_call()
        begun.set()
        while (heard := await line.hear()) is not None and heard.HasField("chunk"):
            assert not heard.chunk.last
        assert heard is not None
        assert heard.HasField("abort")
        small = await line.hear_call()
        await line.say(ok(small.call_id, "next"))
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        large = session.call("echo", {"a": "x" * 10_000_000})
        await begun.wait()
        large.abort("changed my mind")
        outcome = await large
        assert (outcome.kind, outcome.ran) == (Kind.aborted, False)
        assert outcome.message == "changed my mind, before it was sent"
        assert (await session.call("echo")).text == "next"


async def test_few_large_calls_go_up_at_once_and_a_small_one_waits_for_none(tmp_path: Path) -> None:
    started: list[str] = []
    partial: set[str] = set()

    async def script(line: Line) -> None:
        await line.welcome()
        while len(started) < 11 or partial:
            heard = await line.hear()
            assert heard is not None
            if heard.HasField("call"):
                started.append(heard.call.call_id)
                if heard.call.arguments_bytes:
                    partial.add(heard.call.call_id)
            elif heard.chunk.last:
                partial.remove(heard.chunk.call_id)
            assert len(partial) <= 4
        await line.say(*(ok(call_id, "") for call_id in started))
        await until_closed(line)

    async with daemon(tmp_path, script) as scripted, connect(scripted.socket, daemon="running") as session:
        large = [session.call("echo", {"a": "x" * 200_000}) for _ in range(10)]
        small = session.call("echo", call_id="small")
        await asyncio.gather(small, *large)
        assert started.index("small") == 4


async def test_a_call_that_is_listened_to_reports_its_events_and_its_outcome_in_order(tmp_path: Path) -> None:
    async def talks(line: Line) -> None:
        await line.welcome()
        for _ in range(2):
            call_id = (await line.hear_call()).call_id
            await line.say(pb.Event(call_id=call_id, progress=pb.Progress(done=1)), ok(call_id, "said"))
        await until_closed(line)

    async with daemon(tmp_path, talks) as scripted, connect(scripted.socket, daemon="running") as session:
        heard: list[object] = []
        call = session.call("talks")
        call.listen(heard.append, heard.append)
        with pytest.raises(RuntimeError, match="only once"):
            aiter(call)
        outcome = await call
        assert heard == [Progress(1, None, ""), outcome]
        late = session.call("talks")
        await late
        late.listen(heard.append, heard.append)
        assert heard[2:] == [late.outcome]


@pytest.fixture(scope="module")
def used_uvloop() -> None:
    """Run uvloop once: its first loop opens a pipe that stays open."""
    uvloop.new_event_loop().close()


@pytest.mark.usefixtures("used_uvloop")
async def test_a_session_runs_on_uvloop(tmp_path: Path) -> None:
    async def calls(socket: str) -> Kind:
        async with connect(socket, daemon="running") as session:
            return (await session.call("echo")).kind

    def run(socket: str) -> Kind:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(calls(socket))

    async with daemon(tmp_path, echo) as scripted:
        assert await asyncio.to_thread(run, scripted.socket) is Kind.ok
