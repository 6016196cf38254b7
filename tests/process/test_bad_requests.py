"""A request that cannot be served is refused by name, or ends as an Outcome, and the daemon keeps serving.

Everything here goes over bare stubs: what our own client would never send, another one may.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tests.daemons import RunningDaemon
from tests.process.wire import Refusal, Token, Wire, dialled, refusal_of, refusal_of_rpc

from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.sessions.session import WHOLE_BYTES_MAX

pytestmark = pytest.mark.anyio

MIB = 2**20
INVALID = grpc.StatusCode.INVALID_ARGUMENT.value[0]
NOT_FOUND = grpc.StatusCode.NOT_FOUND.value[0]
OUT_OF_ORDER = (grpc.StatusCode.FAILED_PRECONDITION.value[0], "OUT_OF_ORDER")
BAD = (INVALID, "BAD_REQUEST")
TOO_LARGE = (INVALID, "TOO_LARGE")

TOOLS = """
    from typing import Any
    from toolcell import ToolContext, tool

    @tool
    def add(a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b

    @tool(name="size")
    def size(data: Any) -> int:
        \"\"\"Say how long the text is.\"\"\"
        return len(data)

    @tool(name="ask")
    async def ask(context: ToolContext) -> str:
        \"\"\"Ask, and say so.\"\"\"
        await context.ask("May I?")
        return "asked"
"""


class Line:
    """A session's stream in one's own hands."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._waiting: list[pb.Event] = []
        self.welcome = pb.Welcome()

    async def send(self, **message: Any) -> None:
        await self._call.write(pb.AttachRequest(**message))

    async def next(self) -> pb.Event:
        while not self._waiting:
            message = await self._call.read()
            assert message is not grpc.aio.EOF, "the stream has ended"
            self._waiting += message.events
        return self._waiting.pop(0)

    async def expect(self, which: str) -> Any:
        """The next event of that kind; others are passed over."""
        while (event := await self.next()).WhichOneof("event") != which:
            pass
        return getattr(event, which)

    async def refusal(self, call_id: str = "") -> Refusal:
        """The next event but for progress, which must be a refusal about that call."""
        while (event := await self.next()).WhichOneof("event") in {"accepted", "started"}:
            pass
        assert event.WhichOneof("event") == "refused", event
        assert event.call_id == call_id
        return refusal_of(event.refused)

    async def ending(self) -> grpc.aio.AioRpcError:
        """How the stream ends, which must not be well."""
        try:
            while await self._call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error
        raise AssertionError("the stream ended well")

    async def leave(self) -> None:
        """Close the session and read the stream to its end, unless it has ended already."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.send(close=pb.Close())
            while await self._call.read() is not grpc.aio.EOF:
                pass


@asynccontextmanager
async def attached(wire: Wire, daemon: RunningDaemon, **opening: Any) -> AsyncGenerator[Line]:
    """A session in the project, closed at the end."""
    call = wire.tools.Attach(metadata=wire.agent)
    line = Line(call)
    opening = {"protocol": 1, "directory": str(daemon.project), "linger_seconds": 0.0, **opening}
    await line.send(open=pb.Open(**opening))
    line.welcome = await line.expect("welcome")
    while not (await line.expect("catalog")).last:
        pass
    try:
        yield line
    finally:
        await line.leave()


async def ended(wire: Wire, *messages: pb.AttachRequest, token: Token | None = None) -> Refusal:
    """How a stream ends on which these are the first messages."""
    call = wire.tools.Attach(metadata=wire.agent if token is None else token)
    try:
        for message in messages:
            await call.write(message)
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return refusal_of_rpc(error)
    status = await call.code()
    raise AssertionError(f"the stream ended with {status}")


async def refused(rpc: Any, request: Message | bytes, token: Token) -> Refusal:
    """The refusal of a unary request, or of one whose answer is a stream."""
    call: Any = rpc(request, metadata=token)
    streaming = isinstance(call, grpc.aio.UnaryStreamCall)
    try:
        if streaming:
            while await call.read() is not grpc.aio.EOF:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return refusal_of_rpc(error)
    raise AssertionError("it was served")


def seen(refusal: Refusal) -> tuple[tuple[int, str], str]:
    return (refusal.code, refusal.reason), refusal.field


@asynccontextmanager
async def good_neighbour(wire: Wire, daemon: RunningDaemon) -> AsyncGenerator[Callable[[], Any]]:
    """Another session; what is yielded sees that a call in it still works."""
    async with attached(wire, daemon) as line:
        count = 0

        async def check() -> None:
            nonlocal count
            count += 1
            arguments = json.dumps({"a": count, "b": 1}).encode()
            await line.send(call=pb.Call(call_id=f"good-{count}", tool="add", arguments=arguments))
            outcome = await line.expect("outcome")
            assert outcome.kind == pb.OUTCOME_KIND_OK
            assert json.loads(outcome.body)["details"] == count + 1

        yield check


BAD_CALLS: list[tuple[dict[str, Any], tuple[int, str], str]] = [
    ({"tool": "substract"}, (NOT_FOUND, "UNKNOWN_TOOL"), "call.tool"),
    ({"tool": ""}, BAD, "call.tool"),
    ({"tool": "t" * 257}, BAD, "call.tool"),
    ({"tool": "broken"}, (grpc.StatusCode.FAILED_PRECONDITION.value[0], "BROKEN_TOOL"), ""),
    ({"call_id": ""}, BAD, "call.call_id"),
    ({"call_id": "with a space"}, BAD, "call.call_id"),
    ({"call_id": "../../etc"}, BAD, "call.call_id"),
    ({"call_id": "new\nline"}, BAD, "call.call_id"),
    ({"call_id": "ünïcode"}, BAD, "call.call_id"),
    ({"call_id": "c" * 129}, BAD, "call.call_id"),
    ({"message_id": "m" * 257}, BAD, "call.message_id"),
    ({"session_id": "s" * 257}, BAD, "call.session_id"),
    ({"agent_name": "a" * 257}, BAD, "call.agent_name"),
    ({"traceparent": "0" * 257}, BAD, "call.traceparent"),
    ({"limits": pb.Limits(timeout_seconds=-1)}, BAD, "call.limits.timeout_seconds"),
    ({"limits": pb.Limits(timeout_seconds=math.nan)}, BAD, "call.limits.timeout_seconds"),
    ({"limits": pb.Limits(queue_seconds=math.inf)}, BAD, "call.limits.queue_seconds"),
    ({"limits": pb.Limits(idle_seconds=-math.inf)}, BAD, "call.limits.idle_seconds"),
    ({"arguments_bytes": 16 * MIB + 1}, TOO_LARGE, "call.arguments"),
    ({"arguments_bytes": 2**64 - 1}, TOO_LARGE, "call.arguments"),
    ({"arguments": b"[" * 65537}, TOO_LARGE, "call.arguments"),
    ({"arguments": b"[" * (16 * MIB + 1)}, TOO_LARGE, "call.arguments"),
    ({"arguments": b"{}  ", "arguments_bytes": 2}, BAD, "call.arguments_bytes"),
]


BAD_EVENTS: list[tuple[dict[str, Any], tuple[int, str], str]] = [
    ({"reason": ""}, BAD, "session_event.reason"),
    ({"reason": "start"}, BAD, "session_event.reason"),
    ({"reason": "shutdown"}, BAD, "session_event.reason"),
    ({"reason": "x" * 10_000}, BAD, "session_event.reason"),
    ({"reason": "tree", "data": b"[]"}, BAD, "session_event.data"),
    ({"reason": "tree", "data": b"{"}, BAD, "session_event.data"),
    ({"reason": "tree", "data": b'{"a":NaN}'}, BAD, "session_event.data"),
    ({"reason": "tree", "data": b"\xff\xfe"}, BAD, "session_event.data"),
    ({"reason": "tree", "data": b"[" * 20_000}, BAD, "session_event.data"),
    ({"reason": "tree", "data": b'{"a":"' + b"a" * 40_000 + b'"}'}, TOO_LARGE, "session_event.data"),
    ({"reason": "tree", "session_id": "s" * 1000}, BAD, "session_event.session_id"),
]


async def test_a_session_event_that_there_is_not_is_refused(daemon: RunningDaemon) -> None:
    async with dialled(daemon) as wire, attached(wire, daemon) as line:
        for fields, expected, field in BAD_EVENTS:
            await line.send(session_event=pb.SessionEvent(**fields))
            assert seen(await line.refusal()) == (expected, field), fields


@pytest.mark.slow
async def test_a_bad_call_is_refused_and_names_its_field(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)
    daemon.tool("broken", "raise ValueError")

    async with (
        dialled(daemon) as wire,
        attached(wire, daemon) as line,
        good_neighbour(wire, daemon) as the_neighbour_is_served,
    ):
        for number, (fields, expected, field) in enumerate(BAD_CALLS):
            wanted: dict[str, Any] = {"call_id": f"c-{number}", "tool": "add", **fields}
            await line.send(call=pb.Call(**wanted))
            refusal = await line.refusal(wanted["call_id"][:128])
            assert seen(refusal) == (expected, field), fields
            await the_neighbour_is_served()
        await line.send(call=pb.Call(call_id="last", tool="add", arguments=b'{"a":1,"b":2}'))
        assert (await line.expect("outcome")).kind == pb.OUTCOME_KIND_OK


BAD_ARGUMENTS = [
    (b'{"a":1}', "b: is missing"),
    (b'{"a":1,"b":"two"}', 'b: should be a valid integer, got "two"'),
    (b'{"a":1,"b":2.5}', "b: should be a valid integer"),
    (b'{"a":1,"b":2,"c":3}', "c: is not an argument of this tool; there are: a, b"),
    (b"", "a: is missing"),
    (b"not json", "not JSON"),
    (b'{"a":1,"b":2', "not JSON"),
    (b'{"a":1,"b":2}}', "not JSON"),
    (b'{"a":1,"b":NaN}', "NaN"),
    (b'{"a":1,"b":-Infinity}', "Infinity"),
    (b'{"a":1,"b":1e999}', "b: should be a finite number"),
    (b'{"a":1,"b":"\\ud800"}', ""),
    (b'{"a":1,"b":"\xff"}', "invalid unicode"),
    (b"[1,2]", "object"),
    (b"null", "object"),
    (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "recursion limit"),
    (b"[" * 10_000 + b"]" * 10_000, "recursion limit"),
    (b'{"a":1,"b":' + b"9" * 10_000 + b"}", "b"),
]


async def test_wrong_arguments_end_as_an_outcome_that_says_which_and_why(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)

    async with (
        dialled(daemon) as wire,
        attached(wire, daemon) as line,
        good_neighbour(wire, daemon) as the_neighbour_is_served,
    ):
        for number, (arguments, because) in enumerate(BAD_ARGUMENTS):
            first = arguments[:50_000]
            size = len(arguments) if first != arguments else 0
            call = pb.Call(call_id=f"c-{number}", tool="add", arguments=first, arguments_bytes=size)
            await line.send(call=call)
            if size:
                await line.send(chunk=pb.Chunk(call_id=f"c-{number}", data=arguments[50_000:], last=True))
            outcome = await line.expect("outcome")
            assert (outcome.kind, outcome.ran) == (pb.OUTCOME_KIND_INVALID_ARGUMENTS, False), outcome
            assert because in outcome.message, (arguments[:40], outcome.message)
            assert len(outcome.message) < 4000
            await the_neighbour_is_served()


async def test_a_number_that_no_float_holds_is_refused_wherever_it_comes_in(daemon: RunningDaemon) -> None:
    watch = daemon.directory / "watch.py"
    watch.write_text("def before(call):\n    return None\n")
    daemon.configure(f'[hooks.watch]\nfile = "{watch}"\ntools = ["add"]\n')
    daemon.tool("add", TOOLS)

    async with dialled(daemon) as wire, attached(wire, daemon, answers=True) as line:
        await line.send(session_event=pb.SessionEvent(reason="created", data=b'{"n": 1e999}'))
        assert seen(await line.refusal()) == (BAD, "session_event.data")
        await line.send(call=pb.Call(call_id="hooked", tool="add", arguments=b'{"a": 1, "b": -1e999}'))
        refusal = await line.refusal("hooked")
        assert seen(refusal) == (BAD, "call.arguments")
        assert "beyond what a float holds" in refusal.message
        await line.send(call=pb.Call(call_id="any", tool="size", arguments=b'{"data": [0, 1e999]}'))
        assert "data.1: should be a finite number" in (await line.expect("outcome")).message
        assert "internal" not in daemon.log.read_text()


@pytest.mark.slow
async def test_sixteen_mebibytes_of_arguments_arrive_in_chunks(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)
    text = "x" * (16 * MIB - len('{"data":""}'))
    arguments = json.dumps({"data": text}, separators=(",", ":")).encode()

    async with dialled(daemon) as wire, attached(wire, daemon) as line:
        await line.send(call=pb.Call(call_id="c", tool="size", arguments_bytes=len(arguments)))
        for start in range(0, len(arguments), 48 * 1024):
            await line.send(chunk=pb.Chunk(call_id="c", data=arguments[start : start + 48 * 1024]))
        outcome = await line.expect("outcome")

    assert len(arguments) == 16 * MIB
    assert json.loads(outcome.body)["details"] == len(text)


async def test_chunks_that_are_not_what_was_said_are_refused_once(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)
    chunk = pb.Chunk

    async with (
        dialled(daemon) as wire,
        attached(wire, daemon) as line,
        good_neighbour(wire, daemon) as the_neighbour_is_served,
    ):
        await line.send(chunk=chunk(call_id="never", data=b"{}", last=True))
        assert seen(await line.refusal("never")) == (OUT_OF_ORDER, "chunk.call_id")

        await line.send(call=pb.Call(call_id="few", tool="add", arguments_bytes=100))
        await line.send(chunk=chunk(call_id="few", data=b"{}", last=True))
        refusal = await line.refusal("few")
        assert seen(refusal) == (BAD, "chunk.data")
        assert "2 bytes of arguments, where call.arguments_bytes said 100" in refusal.message

        await line.send(call=pb.Call(call_id="many", tool="add", arguments=b"{", arguments_bytes=3))
        for _ in range(5):
            await line.send(chunk=chunk(call_id="many", data=b"      "))
        assert seen(await line.refusal("many")) == (BAD, "chunk.data")

        await line.send(call=pb.Call(call_id="large", tool="size", arguments_bytes=MIB))
        await line.send(chunk=chunk(call_id="large", data=b"x" * 65537))
        assert seen(await line.refusal("large")) == (TOO_LARGE, "chunk.data")

        await line.send(call=pb.Call(call_id="twice", tool="size", arguments_bytes=MIB))
        await line.send(call=pb.Call(call_id="twice", tool="size", arguments_bytes=MIB))
        assert seen(await line.refusal("twice")) == (OUT_OF_ORDER, "call.call_id")

        for number in range(9):
            await line.send(call=pb.Call(call_id=f"part-{number}", tool="size", arguments_bytes=MIB))
        refusal = await line.refusal("part-8")
        assert refusal.reason == "BUSY"

        # The next thing to be heard: the later chunks of a refused call were passed over.
        await line.send(call=pb.Call(call_id="many", tool="add", arguments=b'{"a":1,"b":2}'))
        assert (await line.next()).WhichOneof("event") in {"accepted", "started", "outcome"}
        await the_neighbour_is_served()


async def test_a_message_that_cannot_come_here_is_refused(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)
    opening = pb.Open(protocol=1, directory=str(daemon.project))

    async with (
        dialled(daemon) as wire,
        attached(wire, daemon) as line,
        good_neighbour(wire, daemon) as the_neighbour_is_served,
    ):
        await line.send(open=opening)
        assert seen(await line.refusal()) == (OUT_OF_ORDER, "open")
        await line.send(abort=pb.Abort(call_id="unknown"))
        assert seen(await line.refusal("unknown")) == ((NOT_FOUND, "UNKNOWN_CALL"), "call_id")
        await line.send(answer=pb.Answer(call_id="unknown", ask_id=1, allowed=True))
        assert seen(await line.refusal("unknown")) == (BAD, "answer.call_id")
        await line.send(acknowledged=10**15)
        refusal = await line.refusal()
        assert seen(refusal) == (BAD, "acknowledged")
        assert "the newest event of the session is" in refusal.message
        await the_neighbour_is_served()

        for first in (
            pb.AttachRequest(call=pb.Call(call_id="c", tool="add")),
            pb.AttachRequest(chunk=pb.Chunk(call_id="c")),
            pb.AttachRequest(acknowledged=7),
            pb.AttachRequest(),
        ):
            assert seen(await ended(wire, first)) == (OUT_OF_ORDER, "open")
            await the_neighbour_is_served()
        assert seen(await ended(wire)) == (OUT_OF_ORDER, "open")
        await the_neighbour_is_served()


async def test_an_answer_that_nobody_asked_for_disturbs_no_question(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)

    async with dialled(daemon) as wire, attached(wire, daemon, answers=True) as line:
        await line.send(call=pb.Call(call_id="c", tool="ask"))
        ask = await line.expect("ask")
        for wrong in (0, ask.ask_id + 1, 2**32 - 1):
            await line.send(answer=pb.Answer(call_id="c", ask_id=wrong, allowed=False))
            # It does not name the call: a refusal that does is its ending.
            assert seen(await line.refusal()) == (BAD, "answer.ask_id")
        await line.send(answer=pb.Answer(call_id="c", ask_id=ask.ask_id, allowed=True))
        await line.send(answer=pb.Answer(call_id="c", ask_id=ask.ask_id, allowed=False))  # two may answer
        outcome = await line.expect("outcome")
        assert json.loads(outcome.body)["content"] == [{"type": "text", "text": "asked"}]


@pytest.mark.slow
async def test_a_call_id_is_one_call_whatever_is_sent_under_it(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)

    async with dialled(daemon) as wire, attached(wire, daemon, answers=True) as line:
        await line.send(call=pb.Call(call_id="c", tool="ask"))
        ask = await line.expect("ask")
        await line.send(call=pb.Call(call_id="c", tool="ask", arguments=b"{ }"))
        refusal = await line.refusal()
        assert seen(refusal) == ((grpc.StatusCode.ALREADY_EXISTS.value[0], "CALL_EXISTS"), "call.call_id")
        await line.send(call=pb.Call(call_id="c", tool="ask"))
        await line.expect("accepted")
        await line.send(answer=pb.Answer(call_id="c", ask_id=ask.ask_id, allowed=True))
        first = await line.expect("outcome")

        await line.send(call=pb.Call(call_id="c", tool="ask"))  # rejoined after its end: told again
        assert await line.expect("outcome") == first
        await line.send(call=pb.Call(call_id="c", tool="add", arguments=b'{"a":1,"b":2}'))
        assert (await line.refusal("c")).reason == "CALL_EXISTS"

        long = b'{"a":1,"b":2' + b" " * WHOLE_BYTES_MAX
        await line.send(call=pb.Call(call_id="long", tool="add", arguments=long + b" }"))
        first = await line.expect("outcome")
        await line.send(call=pb.Call(call_id="long", tool="add", arguments=long + b" }"))
        assert await line.expect("outcome") == first
        await line.send(call=pb.Call(call_id="long", tool="add", arguments=long + b"} "))
        assert (await line.refusal("long")).reason == "CALL_EXISTS"


OPENINGS: list[tuple[dict[str, Any], tuple[int, str], str]] = [
    (
        {"protocol": 2, "client_version": "9.9"},
        (grpc.StatusCode.FAILED_PRECONDITION.value[0], "VERSION_MISMATCH"),
        "open.protocol",
    ),
    ({"protocol": 0}, (grpc.StatusCode.FAILED_PRECONDITION.value[0], "VERSION_MISMATCH"), "open.protocol"),
    ({"directory": ""}, BAD, "open.directory"),
    ({"directory": "relative/path"}, BAD, "open.directory"),
    ({"directory": "/nowhere/to/be/found"}, BAD, "open.directory"),
    ({"directory": "/etc/passwd"}, BAD, "open.directory"),
    ({"directory": "/tmp\0/etc"}, BAD, "open.directory"),
    ({"directory": "/" + "d" * 100_000}, BAD, "open.directory"),
    ({"linger_seconds": -1.0}, BAD, "open.linger_seconds"),
    ({"linger_seconds": math.nan}, BAD, "open.linger_seconds"),
    ({"linger_seconds": 3601.0}, BAD, "open.linger_seconds"),
    ({"limits": pb.Limits(cpu_seconds=-2)}, BAD, "open.limits.cpu_seconds"),
    ({"agent": "a" * 257}, BAD, "open.agent"),
    ({"session_id": "s" * 257}, BAD, "open.session_id"),
    ({"allow": ["*"] * 1001}, BAD, "open.allow"),
    ({"deny": ["*"] * 1001}, BAD, "open.deny"),
    ({"allow": ["a" * 257]}, BAD, "open.allow"),
]


async def test_a_bad_opening_ends_the_stream_and_names_its_field(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)

    async with dialled(daemon) as wire, good_neighbour(wire, daemon) as the_neighbour_is_served:
        for fields, expected, field in OPENINGS:
            wanted: dict[str, Any] = {"protocol": 1, "directory": str(daemon.project), **fields}
            opening = pb.Open(**wanted)
            refusal = await ended(wire, pb.AttachRequest(open=opening))
            assert seen(refusal) == (expected, field), fields
            await the_neighbour_is_served()
        refusal = await ended(wire, pb.AttachRequest(open=pb.Open(protocol=2, client_version="9.9")))
        assert "protocol 2 (version 9.9)" in refusal.message
        assert "this daemon protocol 1" in refusal.message


async def test_a_session_is_taken_over_by_its_token_alone(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)

    async with dialled(daemon) as wire, attached(wire, daemon) as line:
        session_id, secret = line.welcome.session_id, line.welcome.resume_token

        def taking_over(**fields: Any) -> pb.AttachRequest:
            return pb.AttachRequest(open=pb.Open(protocol=1, session_id=session_id, **fields))

        refusal = await ended(wire, taking_over())
        assert seen(refusal) == (
            (grpc.StatusCode.ALREADY_EXISTS.value[0], "SESSION_EXISTS"),
            "open.resume_token",
        )
        refusal = await ended(wire, taking_over(resume_token="guessed"))
        assert seen(refusal) == (
            (grpc.StatusCode.PERMISSION_DENIED.value[0], "WRONG_TOKEN"),
            "open.resume_token",
        )
        beyond = taking_over(resume_token=secret)
        beyond.acknowledged = 10**9
        assert seen(await ended(wire, beyond)) == (BAD, "acknowledged")
        await line.send(call=pb.Call(call_id="c", tool="add", arguments=b'{"a":1,"b":2}'))
        assert (await line.expect("outcome")).kind == pb.OUTCOME_KIND_OK  # it was not taken over

        async with attached(
            wire, daemon, session_id=session_id, resume_token=secret, linger_seconds=9
        ) as other:
            assert other.welcome.resumed
            assert seen(refusal_of_rpc(await line.ending())) == (
                (grpc.StatusCode.ABORTED.value[0], "SUPERSEDED"),
                "",
            )
            await other.send(call=pb.Call(call_id="d", tool="add", arguments=b'{"a":1,"b":2}'))
            while (event := await other.next()).call_id != "d" or not event.HasField("outcome"):
                pass
            assert event.outcome.kind == pb.OUTCOME_KIND_OK


async def test_an_unknown_session_opens_a_new_one_and_says_so(daemon: RunningDaemon) -> None:
    async with (
        dialled(daemon) as wire,
        attached(wire, daemon, session_id="s-of-old", resume_token="of old") as line,
    ):
        assert not line.welcome.resumed
        assert line.welcome.session_id not in ("", "s-of-old")


async def test_one_call_without_a_session_is_refused_alike(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)
    good: dict[str, Any] = {
        "call": pb.Call(tool="add", arguments=b'{"a":1,"b":2}'),
        "directory": str(daemon.project),
    }
    table: list[tuple[dict[str, Any], tuple[int, str], str]] = [
        ({"call": pb.Call(tool="substract")}, (NOT_FOUND, "UNKNOWN_TOOL"), "call.tool"),
        ({"call": pb.Call()}, BAD, "call.tool"),
        ({"call": pb.Call(tool="add", call_id="a b")}, BAD, "call.call_id"),
        ({"call": pb.Call(tool="add", limits=pb.Limits(timeout_seconds=-1))}, BAD, "call.limits.timeout_seconds"),
        ({"call": pb.Call(tool="size", arguments=b"x" * (16 * MIB + 1))}, TOO_LARGE, "call.arguments"),
        ({"call": pb.Call(tool="size", arguments=b"{}", arguments_bytes=10)}, BAD, "call.arguments_bytes"),
        ({"directory": "here"}, BAD, "directory"),
        ({"directory": "/nowhere/to/be/found"}, BAD, "directory"),
        ({"directory": "/\0"}, BAD, "directory"),
        ({"agent": "a" * 257}, BAD, "agent"),
    ]  # fmt: skip

    async with dialled(daemon) as wire, good_neighbour(wire, daemon) as the_neighbour_is_served:
        for fields, expected, field in table:
            request = pb.CallToolRequest(**{**good, **fields})
            assert seen(await refused(wire.tools.CallTool, request, wire.agent)) == (expected, field), fields
            await the_neighbour_is_served()
        events = [
            answer.event
            async for answer in wire.tools.CallTool(pb.CallToolRequest(**good), metadata=wire.agent)
        ]
        assert events[-1].outcome.kind == pb.OUTCOME_KIND_OK


async def test_the_other_requests_are_refused_alike(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)

    async with (
        dialled(daemon) as wire,
        attached(wire, daemon) as line,
        good_neighbour(wire, daemon) as the_neighbour_is_served,
    ):
        tools = wire.tools
        mine: dict[str, Any] = {"session_id": line.welcome.session_id}
        proof: dict[str, Any] = {**mine, "resume_token": line.welcome.resume_token}
        table: list[tuple[Any, Message, tuple[int, str], str]] = [
            (tools.ListTools, pb.ListToolsRequest(directory="."), BAD, "directory"),
            (tools.ListTools, pb.ListToolsRequest(directory="/a\0b"), BAD, "directory"),
            (tools.GetTool, pb.GetToolRequest(directory="/nowhere", name="add"), BAD, "directory"),
            (tools.GetTool, pb.GetToolRequest(directory=str(daemon.project), name="no"), (NOT_FOUND, "UNKNOWN_TOOL"), "name"),
            (tools.AbortCall, pb.AbortCallRequest(call_id="c"), (NOT_FOUND, "UNKNOWN_SESSION"), "session_id"),
            (tools.AbortCall, pb.AbortCallRequest(call_id="c", **mine), (7, "WRONG_TOKEN"), "resume_token"),
            (tools.AbortCall, pb.AbortCallRequest(call_id="c", **proof), (NOT_FOUND, "UNKNOWN_CALL"), "call_id"),
            (tools.ReadOutput, pb.ReadOutputRequest(output_id="o-1"), (NOT_FOUND, "UNKNOWN_SESSION"), "session_id"),
            (tools.ReadOutput, pb.ReadOutputRequest(output_id="o-1", **mine), (7, "WRONG_TOKEN"), "resume_token"),
            (tools.ReadOutput, pb.ReadOutputRequest(output_id="o-1", **proof), (NOT_FOUND, "UNKNOWN_OUTPUT"), "output_id"),
            (tools.ReadOutput, pb.ReadOutputRequest(output_id="../toolcell.sqlite", **proof), (NOT_FOUND, "UNKNOWN_OUTPUT"), "output_id"),
            (tools.ReadOutput, pb.ReadOutputRequest(output_id="\0", **proof), (NOT_FOUND, "UNKNOWN_OUTPUT"), "output_id"),
            (tools.ListOffers, pb.ListOffersRequest(), (NOT_FOUND, "UNKNOWN_SESSION"), "session_id"),
            (tools.ListOffers, pb.ListOffersRequest(session_id="../x", resume_token="x" * 9000), (NOT_FOUND, "UNKNOWN_SESSION"), "session_id"),
            (tools.ListOffers, pb.ListOffersRequest(**mine), (7, "WRONG_TOKEN"), "resume_token"),
        ]  # fmt: skip
        for rpc, request, expected, field in table:
            assert seen(await refused(rpc, request, wire.agent)) == (expected, field), request
            await the_neighbour_is_served()


async def test_nothing_is_served_without_the_right_token(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)
    unauthenticated = (grpc.StatusCode.UNAUTHENTICATED.value[0], "UNAUTHENTICATED")
    opening = pb.AttachRequest(open=pb.Open(protocol=1, directory=str(daemon.project)))
    tokens: list[Token] = [
        (),
        (("authorization", ""),),
        (("authorization", "Bearer "),),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Basic YTpi"),),
    ]

    async with dialled(daemon) as wire, good_neighbour(wire, daemon) as the_neighbour_is_served:
        for token in tokens:
            assert seen(await ended(wire, opening, token=token)) == (unauthenticated, "")
            for rpc, request in (
                (wire.tools.CallTool, pb.CallToolRequest()),
                (wire.tools.ListTools, pb.ListToolsRequest()),
                (wire.operator.GetStatus, op.GetStatusRequest()),
                (wire.operator.WatchEvents, op.WatchEventsRequest()),
                (wire.health.Check, health_pb2.HealthCheckRequest()),
            ):
                refusal = await refused(rpc, request, token)
                assert seen(refusal) == (unauthenticated, "")
                assert ".token beside the socket" in refusal.message
            asked = wire.reflection.ServerReflectionInfo(iter([_services()]), metadata=token)
            assert seen(refusal_of_rpc(await Line(asked).ending())) == (unauthenticated, "")
            await the_neighbour_is_served()

        refusal = await refused(wire.operator.GetStatus, op.GetStatusRequest(), wire.agent)
        assert seen(refusal) == ((grpc.StatusCode.PERMISSION_DENIED.value[0], "UNAUTHENTICATED"), "")
        assert "operator.token" in refusal.message
        assert (await wire.operator.GetStatus(op.GetStatusRequest(), metadata=wire.person)).state == "serving"


def _services() -> reflection_pb2.ServerReflectionRequest:
    return reflection_pb2.ServerReflectionRequest(list_services="")


async def test_an_operators_bad_request_is_refused_and_names_its_field(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)
    unknown = (NOT_FOUND, "UNKNOWN_TOOL")
    project = str(daemon.project)

    async with dialled(daemon) as wire, good_neighbour(wire, daemon) as the_neighbour_is_served:
        operator = wire.operator
        table: list[tuple[Any, Message, tuple[int, str], str]] = [
            (operator.DisableTool, op.DisableToolRequest(), unknown, "tool"),
            (operator.DisableTool, op.DisableToolRequest(tool="t" * MIB), unknown, "tool"),
            (operator.DisableTool, op.DisableToolRequest(tool="no", directory=project), unknown, "tool"),
            (operator.DisableTool, op.DisableToolRequest(tool="no", directory="/a\0b"), BAD, "directory"),
            (operator.EnableTool, op.EnableToolRequest(), unknown, "tool"),
            (operator.QuarantineTool, op.QuarantineToolRequest(), unknown, "tool"),
            (
                operator.QuarantineTool,
                op.QuarantineToolRequest(tool="/etc/passwd", directory=project),
                unknown,
                "tool",
            ),
            (operator.QuarantineTool, op.QuarantineToolRequest(tool="add", directory="."), BAD, "directory"),
            (operator.SetLogLevel, op.SetLogLevelRequest(), BAD, "level"),
            (operator.SetLogLevel, op.SetLogLevelRequest(level="l" * MIB), BAD, "level"),
            (operator.SetLogLevel, op.SetLogLevelRequest(level="info", seconds=-1), BAD, "seconds"),
            (operator.SetLogLevel, op.SetLogLevelRequest(level="info", seconds=math.nan), BAD, "seconds"),
            (operator.SetLogLevel, op.SetLogLevelRequest(level="info", seconds=math.inf), BAD, "seconds"),
            (operator.EnableTool, op.EnableToolRequest(tool="\0" * MIB), unknown, "tool"),
            (operator.GetTrust, op.GetTrustRequest(directory=project, server="no"), BAD, "server"),
            (operator.Trust, op.TrustRequest(directory=project, server="\x1b" * MIB), BAD, "server"),
            (operator.TryServer, op.TryServerRequest(directory=project), BAD, "server"),
            (operator.TryServer, op.TryServerRequest(directory="/a\0b", server="no"), BAD, "server"),
        ]
        for rpc, request, expected, field in table:
            assert seen(await refused(rpc, request, wire.person)) == (expected, field), str(request)[:80]
            await the_neighbour_is_served()


async def test_health_and_reflection_answer_who_shows_a_token(daemon: RunningDaemon) -> None:
    async with dialled(daemon) as wire:
        for service in ("", "toolcell.v1.ToolCell", "toolcell.v1.Operator"):
            request = health_pb2.HealthCheckRequest(service=service)
            answer = await wire.health.Check(request, metadata=wire.agent)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        asked = wire.reflection.ServerReflectionInfo(iter([_services()]), metadata=wire.agent)
        answers: list[Any] = [answer async for answer in asked]
        names = {service.name for service in answers[0].list_services_response.service}
        assert names >= {
            "toolcell.v1.ToolCell",
            "toolcell.v1.Operator",
            "grpc.reflection.v1alpha.ServerReflection",
        }


@pytest.mark.parametrize("garbage", [b"\xff" * 100, b"\x12\xff\xff\xff\xff\x0f"])
async def test_bytes_that_are_no_message_end_their_stream_and_no_other(
    daemon: RunningDaemon, garbage: bytes
) -> None:
    daemon.tool("add", TOOLS)
    opening = pb.AttachRequest(open=pb.Open(protocol=1, directory=str(daemon.project), linger_seconds=0))

    async with dialled(daemon) as wire, good_neighbour(wire, daemon) as the_neighbour_is_served:
        for before in ((), (opening.SerializeToString(),)):
            stream = wire.channel.stream_stream("/toolcell.v1.ToolCell/Attach")(metadata=wire.agent)
            for data in before:
                await stream.write(data)
                await stream.read()
            await stream.write(garbage)
            assert seen(refusal_of_rpc(await Line(stream).ending())) == (BAD, "")
            await the_neighbour_is_served()
        for kind, method in (("unary_unary", "ListTools"), ("unary_stream", "CallTool")):
            rpc = getattr(wire.channel, kind)(f"/toolcell.v1.ToolCell/{method}")
            assert seen(await refused(rpc, garbage, wire.agent)) == (BAD, "")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await wire.channel.unary_unary("/toolcell.v1.ToolCell/Nothing")(b"", metadata=wire.agent)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await the_neighbour_is_served()


@pytest.mark.slow
async def test_a_message_over_the_bound_of_the_transport_ends_its_stream_and_no_other(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("add", TOOLS)
    arguments = b"x" * (18 * MIB)

    async with dialled(daemon) as wire, good_neighbour(wire, daemon) as the_neighbour_is_served:
        async with attached(wire, daemon) as line:
            await line.send(call=pb.Call(call_id="c", tool="size", arguments=arguments))
            error = await line.ending()
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "larger than max" in str(error.details())
        await the_neighbour_is_served()
        request = pb.CallToolRequest(
            call=pb.Call(tool="size", arguments=arguments), directory=str(daemon.project)
        )
        error = await Line(wire.tools.CallTool(request, metadata=wire.agent)).ending()
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await the_neighbour_is_served()


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("rule", [True, False], ids=["asked by a rule", "asked by the tool"])
async def test_a_session_that_is_resumed_with_an_open_question_ends_with_its_client(
    daemon: RunningDaemon, answers: bool, rule: bool
) -> None:
    daemon.tool("add", TOOLS)
    if rule:
        daemon.configure('\n[permissions]\n"add" = "ask"\n')
    async with dialled(daemon) as wire:
        opening: dict[str, Any] = {"protocol": 1, "directory": str(daemon.project), "linger_seconds": 60.0}
        first = wire.tools.Attach(metadata=wire.agent)
        line = Line(first)
        await line.send(open=pb.Open(**opening, answers=True))
        line.welcome = await line.expect("welcome")
        tool, arguments = ("add", b'{"a": 1, "b": 2}') if rule else ("ask", b"{}")
        await line.send(call=pb.Call(call_id="c", tool=tool, arguments=arguments))
        await line.expect("ask")
        opening |= {"session_id": line.welcome.session_id, "resume_token": line.welcome.resume_token}
        first.cancel()

        second = wire.tools.Attach(metadata=wire.agent)
        line = Line(second)
        opening["linger_seconds"] = 0.0
        await line.send(open=pb.Open(**opening, answers=answers))
        assert (await line.expect("welcome")).resumed
        await line.send(close=pb.Close())
        while await second.read() is not grpc.aio.EOF:
            pass
        while any(
            session.session_id == opening["session_id"]
            for session in (
                await wire.operator.ListSessions(op.ListSessionsRequest(), metadata=wire.person)
            ).sessions
        ):
            await asyncio.sleep(0.02)  # no client is notified


async def test_a_question_shows_the_values_that_the_tool_gets(daemon: RunningDaemon) -> None:
    daemon.tool("add", TOOLS)
    daemon.configure('\n[permissions]\n"size" = "ask"\n')
    async with dialled(daemon) as wire, attached(wire, daemon, answers=True) as line:
        arguments = b'{"data": "harmless",' + b" " * 40_000 + b'"data": "evil"}'
        await line.send(call=pb.Call(call_id="c", tool="size", arguments=arguments))
        ask = await line.expect("ask")
        assert ask.question == 'Run size of project with {"data": "evil"}?'
        await line.send(answer=pb.Answer(call_id="c", ask_id=ask.ask_id, allowed=True))
        assert (await line.expect("outcome")).kind == pb.OUTCOME_KIND_OK
