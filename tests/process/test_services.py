"""Services: what a tool requests of its agent, through a real daemon."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import pytest
from tests.daemons import RunningDaemon
from tests.process.wire import dialled

from toolcell.client import Call, Kind, Session, Unavailable
from toolcell.client.callbacks import RESULT_BYTES_MAX
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

TOOL = """
import asyncio
from toolcell import ToolContext, tool

@tool
async def wants(service: str, context: ToolContext, prompt: str = "hi") -> str:
    return repr(await context.request(service, prompt=prompt))

@tool(timeout=3)
def patient(context: ToolContext, service: str) -> str:
    return repr(context.wait(context.request(service, prompt="hi")))

@tool(timeout=3)
async def late() -> None:
    await asyncio.sleep(600)

@tool
async def many(count: int, context: ToolContext) -> list[int]:
    return await asyncio.gather(*[context.request("twice", n=n) for n in range(count)])

@tool
async def gives_up(context: ToolContext) -> str:
    slow = asyncio.create_task(context.request("slow", prompt="hi"))
    await context.request("begun")
    slow.cancel()
    await asyncio.wait({slow})
    return "gave up" if slow.cancelled() else "never"

@tool
async def deeper(context: ToolContext, level: int = 0) -> str:
    return await context.request("deeper", level=level + 1)
"""


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    daemon.tool("w", TOOL)
    return daemon


async def test_a_tool_gets_what_the_service_gives_and_the_service_knows_the_call(
    served: RunningDaemon,
) -> None:
    seen: list[tuple[str, str, str]] = []

    async def send(call: Call, prompt: str) -> dict[str, Any]:
        seen.append((call.id, call.tool, prompt))
        return {"reply": prompt.upper(), "é": [1, None]}

    async with served.connect(agent="claude", services={"session.send": send}) as session:
        outcome = await session.call("w_wants", {"service": "session.send"}, call_id="c-1")
        assert outcome.text == repr({"reply": "HI", "é": [1, None]})
        assert seen == [("c-1", "w_wants", "hi")]


async def test_whatever_goes_wrong_is_a_tool_error_with_its_reason(served: RunningDaemon) -> None:
    async def fail(call: Call, prompt: str) -> object:
        raise OSError("no such session")

    async def odd(call: Call, prompt: str) -> object:
        return {1, 2}

    async def huge(call: Call, prompt: str) -> object:
        return "x" * RESULT_BYTES_MAX

    async def other(call: Call) -> object:
        return "never"

    services = {"fail": fail, "odd": odd, "huge": huge, "other": other}
    async with served.connect(agent="claude", services=services) as session:

        async def message(service: str, prompt: str = "hi") -> str:
            outcome = await session.call("w_wants", {"service": service, "prompt": prompt})
            assert outcome.kind is Kind.tool_error
            return outcome.message

        assert "fail: OSError: no such session" in await message("fail")
        assert "odd: TypeError" in await message("odd")
        assert f"the result takes {RESULT_BYTES_MAX + 2} bytes" in await message("huge")
        assert "other: TypeError" in await message("other")
        assert "claude offers no service 'none'; it offers fail, huge, odd, other" in await message("none")
        assert "more than 49152" in await message("fail", "x" * 60_000)


async def test_without_services_a_request_is_refused_at_once(served: RunningDaemon) -> None:
    async with served.connect(agent="claude") as session:
        outcome = await session.call("w_wants", {"service": "session.send"})
        assert "claude offers no service 'session.send'; it offers none" in outcome.message


@pytest.mark.slow
async def test_no_clock_runs_while_a_service_is_at_it_and_its_place_is_free(served: RunningDaemon) -> None:
    served.config.write_text(served.config.read_text() + "\n[daemon]\ncalls_per_session = 1\n")
    served.reload()
    sessions: list[Session] = []

    async def none(call: Call, prompt: str) -> None: ...

    async def slow(call: Call, prompt: str) -> str:
        # Another call with the same clock passes it meanwhile, in the one place of the session.
        meanwhile = await sessions[0].call("w_late")
        assert (meanwhile.kind, meanwhile.ran) == (Kind.timed_out, True), meanwhile
        assert call.outcome is None
        return "done"

    async with served.connect(services={"none": none, "slow": slow}) as session:
        sessions.append(session)
        assert (await session.call("w_patient", {"service": "none"})).ok  # a worker that has started
        outcome = await session.call("w_patient", {"service": "slow"})
        assert (outcome.kind, outcome.text) == (Kind.ok, "'done'"), outcome.message


async def test_requests_of_one_call_run_side_by_side(served: RunningDaemon) -> None:
    async def twice(call: Call, n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    async with served.connect(services={"twice": twice}) as session:
        outcome = await session.call("w_many", {"count": 10})
        assert outcome.details == [2 * n for n in range(10)]


@pytest.mark.parametrize("way", ["abort", "give up"])
async def test_a_service_that_nobody_waits_for_is_cancelled_with_the_call(
    served: RunningDaemon, way: str
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(call: Call, prompt: str) -> str:
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()
        return "never"

    async def begun(call: Call) -> None:
        await began.wait()

    async with served.connect(services={"slow": slow, "begun": begun}) as session:
        if way == "abort":
            call = session.call("w_wants", {"service": "slow"})
            await began.wait()
            call.abort()
        else:
            call = session.call("w_gives_up")
        outcome = await call
        assert outcome.kind is (Kind.aborted if way == "abort" else Kind.ok), outcome
        assert way == "abort" or outcome.text == "gave up"
        await ended.wait()


@pytest.mark.slow
async def test_calls_that_start_calls_end_at_a_depth_also_through_other_sessions(
    served: RunningDaemon,
) -> None:
    levels: list[int] = []
    sessions: list[Session] = []

    async def deeper(call: Call, level: int) -> str:
        levels.append(level)
        outcome = await sessions[level % 2].call("w_deeper", {"level": level})  # its parent goes along
        return outcome.message or outcome.text

    async with (
        served.connect(services={"deeper": deeper}) as one,
        served.connect(services={"deeper": deeper}) as two,
    ):
        sessions += [one, two]
        outcome = await one.call("w_deeper")
        assert "more than 4 deep" in outcome.text
        assert levels == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (pb.Reply(call_id="c-none", ask_id=1, result=b"1"), "has asked no question 1"),
        (pb.Reply(call_id="c-1", ask_id=9, result=b"1"), "has asked no question 9"),
        (pb.Reply(call_id="c-1", ask_id=1, result=b"no json"), "reply.result"),
        (pb.Reply(call_id="c-1", ask_id=1, result=b"NaN"), "reply.result"),
        (pb.Reply(call_id="c-1", ask_id=1, result=b"1" * 50_000), "more than 49152"),
    ],
    ids=["no call", "no request", "no JSON", "NaN", "too large"],
)
async def test_a_reply_that_cannot_be_passed_on_is_refused_by_its_field(
    served: RunningDaemon, reply: pb.Reply, said: str
) -> None:
    async with dialled(served) as wire:
        stream = wire.tools.Attach(metadata=wire.agent)

        async def until(kind: str) -> pb.Event:
            while True:
                for event in (await stream.read()).events:
                    if event.WhichOneof("event") == kind:
                        assert isinstance(event, pb.Event)
                        return event

        opening = pb.Open(protocol=1, agent="wire", directory=str(served.project), services=["slow"])
        await stream.write(pb.AttachRequest(open=opening))
        await stream.write(
            pb.AttachRequest(call=pb.Call(call_id="c-1", tool="w_wants", arguments=b'{"service":"slow"}'))
        )
        await until("request")
        await stream.write(pb.AttachRequest(reply=reply))
        assert said in (await until("refused")).refused.message
        await stream.write(pb.AttachRequest(reply=pb.Reply(call_id="c-1", ask_id=1, result=b'"still"')))
        assert b"still" in (await until("outcome")).outcome.body
        await stream.write(pb.AttachRequest(close=pb.Close()))
        await stream.done_writing()
        while await stream.read() is not grpc.aio.EOF:
            pass


@pytest.mark.parametrize("names", [["A"], [""], ["x" * 65], ["a b"], [f"s{n}" for n in range(65)]])
async def test_services_with_names_that_are_none_are_refused_at_the_opening(
    served: RunningDaemon, names: list[str]
) -> None:
    async def none(call: Call) -> None: ...

    with pytest.raises(Unavailable, match=r"open\.services"):
        async with served.connect(services=dict.fromkeys(names, none)):
            pass
