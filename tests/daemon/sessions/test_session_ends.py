"""A session always ends, gives its place back, and ends each of its calls once, whatever happens to its streams."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemon.sessions.stage import CALLS_PER_SESSION, LINGER_SECONDS, STATES, Line, Stage, staged

from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.calls.outcomes.outcome import Kind, Stop
from toolcelld.lifecycle import CallState, SessionState, WorkerState

pytestmark = pytest.mark.anyio

STEPS_MAX: Final = 40
"""Of ten seconds each, after which a session has ended: the linger, and what a tool has after it is told to stop."""


REPEATED: Final = "again"
"""The id of calls that are sent more than once; they are told as often."""


Ending: TypeAlias = Callable[[Stage, Line], Awaitable[None]]


class Resumed(NamedTuple):
    """A client that resumes the session, and what it can do."""

    answers: bool
    services: bool
    breaks_at_once: bool


BREAKS: Final = ("cancelled", "half closed", "stalled", "not broken")
RESUMED: Final = (None, *itertools.starmap(Resumed, itertools.product((True, False), repeat=3)))


async def close(stage: Stage, line: Line) -> None:
    line.send(close=pb.Close())


async def linger_out(stage: Stage, line: Line) -> None:
    line.break_off()


async def abort(stage: Stage, line: Line) -> None:
    for session in stage.sessions.all:
        for call_id in list(session.calls):
            session.abort(call_id, Stop(Kind.ABORTED, "client", "by the operator"))
    await stage.settle()
    line.break_off()


async def drain(stage: Stage, line: Line) -> None:
    stage.tasks.create_task(stage.sessions.drain(1.0))


async def answer(stage: Stage, line: Line) -> None:
    """Answer everything, then leave: the calls end by themselves while the line breaks."""
    for session in stage.sessions.all:
        for call in list(session.calls.values()):
            for questions in call.questions:
                for number in list(questions._open):  # pyright: ignore[reportPrivateUsage]
                    line.send(answer=pb.Answer(call_id=call.id, ask_id=number, allowed=True))
                    line.send(reply=pb.Reply(call_id=call.id, ask_id=number, result=b"1"))
    line.half_close()


async def lose_workers(stage: Stage, line: Line) -> None:
    """End every cell, as a host without memory does, and leave."""
    for worker in stage.pool.workers:
        worker.cell.end()
    line.break_off()


ENDINGS: Final[tuple[Ending, ...]] = (
    close, linger_out, abort, drain, answer, lose_workers,
)  # fmt: skip


async def run_call(stage: Stage, line: Line, tool: str, call_id: str) -> None:
    line.send(call=pb.Call(call_id=call_id, tool=tool, arguments=b"{}"))
    await stage.settle()


def break_line(line: Line, how: str) -> None:
    if how == "cancelled":
        line.break_off()
    elif how == "half closed":
        line.half_close()
    elif how == "stalled":
        line.stall()


def endings_told(stage: Stage) -> dict[tuple[str, int], str]:
    """The events that end a call, by session and number: what was lost is sent again under its number."""
    return {
        (line.welcome.session_id, event.number): event.call_id
        for line in stage.lines
        for event in line.down
        if event.call_id not in ("", REPEATED) and event.WhichOneof("event") in ("outcome", "refused")
    }


async def all_have_ended(stage: Stage) -> None:
    """Check everything that a session has to give back; it must end, and its place must serve another one."""
    for _ in range(STEPS_MAX):
        if not stage.sessions.all:
            break
        await stage.pass_seconds(10)
    await stage.settle()
    assert stage.sessions.all == []
    for session in stage.seen:
        assert session.state is SessionState.CLOSED
        assert (session.places.free, session.hook_places.free) == (CALLS_PER_SESSION, CALLS_PER_SESSION)
        assert session.retention.arguments_bytes == 0
    for call in stage.calls:
        assert call.state is CallState.ENDED, call
        assert not any(questions.open for questions in call.questions), call
    assert (
        sum(session.calls_ended for session in stage.seen) == stage.sessions.recent.added >= len(stage.calls)
    )
    assert stage.joined == 0
    assert {worker.state for worker in stage.pool.workers} <= {WorkerState.STARTING, WorkerState.IDLE}
    told = endings_told(stage)
    assert len({*told.values()}) == len(told), told
    for line in stage.lines:
        if not line.rpc.done():  # its client has not noticed yet
            line.break_off()
    ends = await asyncio.gather(*(line.rpc for line in stage.lines), return_exceptions=True)
    expected = (asyncio.CancelledError, grpc.aio.AbortError, grpc.aio.InternalError)
    assert [end for end in ends if end is not None and not isinstance(end, expected)] == []
    assert stage.sessions.retention.bytes == 0
    if not stage.sessions.draining:
        stage.attach(answers=True, services=True)
        await stage.settle()
        assert len(stage.sessions.all) == 1


def chosen(state: str, share: int) -> Iterator[tuple[str, Resumed | None, Ending]]:
    """Every `share`th way of a break, a resumption and an ending, others for each state.

    With a sixth, each state has every break with every resumption, and all states together have every pair of ways.
    """
    ways = itertools.product(enumerate(BREAKS), enumerate(RESUMED), enumerate(ENDINGS))
    for (i, how), (j, resumed), (k, ending) in ways:
        if (i + j + k + STATES.index(state)) % share == 0:
            yield how, resumed, ending


@pytest.mark.slow
@pytest.mark.parametrize("share", [6, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("state", STATES)
async def test_a_session_ends_from_every_state_of_a_call_whoever_resumes_it(state: str, share: int) -> None:
    for how, resumed, ending in chosen(state, share):
        async with staged() as stage:
            line = stage.attach(answers=True, services=True)
            await stage.settle()
            (session,) = stage.sessions.all
            await run_call(stage, line, state, "c-1")
            assert list(session.calls) == ["c-1"]
            break_line(line, how)
            await stage.settle()
            if resumed is not None:
                line = stage.attach(line, **resumed._asdict())
                await stage.settle()
            await ending(stage, line)
            await stage.settle()
            try:
                await all_have_ended(stage)
                if ending in (close, drain) and (
                    how == "not broken" if resumed is None else not resumed.breaks_at_once
                ):
                    assert [*endings_told(stage).values()] == ["c-1"]
            except AssertionError as error:
                raise AssertionError(f"{how}, {resumed}, {ending.__name__}") from error


def test_a_sixth_of_the_ways_has_every_pair_of_them() -> None:
    found = [way for state in STATES for way in chosen(state, 6)]
    for pair in itertools.combinations((BREAKS, RESUMED, ENDINGS), 2):
        places = [(BREAKS, RESUMED, ENDINGS).index(each) for each in pair]
        assert {tuple(way[place] for place in places) for way in found} == set(itertools.product(*pair))
    assert len(found) * 6 == sum(1 for state in STATES for _ in chosen(state, 1))


async def test_nothing_is_obeyed_of_a_stream_that_another_one_has_replaced() -> None:
    async with staged() as stage:
        first = stage.attach(answers=True, services=True)
        await stage.settle()
        (session,) = stage.sessions.all
        first.stall()
        session.republish()  # something to write, in which the stream is held up
        await stage.pass_seconds(0.006)
        second = stage.attach(first, answers=True, services=True)
        await stage.settle()
        assert second.welcome.resumed
        assert not first.rpc.done()
        await run_call(stage, first, "runs", "c-1")
        assert session.calls == {}
        second.send(close=pb.Close())
        await stage.settle()
        await all_have_ended(stage)


async def test_what_a_client_sends_after_its_session_has_ended_counts_for_no_other_session() -> None:
    async with staged() as stage:
        line = stage.attach(answers=True, services=True)
        await stage.settle()
        line.send(close=pb.Close())
        for number in range(3):
            line.send(call=pb.Call(call_id=f"c-{number}", tool="runs"))
        await stage.settle()
        assert sum(event.HasField("refused") for event in line.down) == 3
        await all_have_ended(stage)


@pytest.mark.parametrize(
    ("tool", "ending", "said"),
    [
        ("asks", ("TIMED_OUT", "question"), "its questions have waited 20 s for answers"),
        ("requests", ("TIMED_OUT", "question"), "its questions have waited 20 s for answers"),
        ("asked", ("DENIED", "permission"), "not allowed to run: its questions have waited 20 s"),
    ],
)
async def test_a_question_that_nobody_answers_ends_its_call_within_the_most_that_a_call_may_take(
    tool: str, ending: tuple[str, str], said: str
) -> None:
    async with staged(max_timeout_seconds=20.0) as stage:
        line = stage.attach(answers=True, services=True)
        await stage.settle()
        await run_call(stage, line, tool, "c-1")
        (call,) = stage.calls
        await stage.pass_seconds(19.0)
        assert not call.ended
        await stage.pass_seconds(1.1)
        await stage.pass_seconds(10.0)  # what a tool has to end after it was told
        assert call.outcome is not None
        assert (call.outcome.kind.name, call.outcome.cause) == ending
        assert said in call.outcome.message
        assert "[max] timeout" in call.outcome.message
        assert "when its questions can be answered" in call.outcome.message
        line.send(close=pb.Close())
        await stage.settle()
        await all_have_ended(stage)


async def test_the_time_of_all_questions_of_a_call_counts_together() -> None:
    async with staged(max_timeout_seconds=20.0) as stage:
        line = stage.attach(answers=True, services=True)
        await stage.settle()
        await run_call(stage, line, "asks again", "c-1")
        (call,) = stage.calls
        for number in (1, 2):
            await stage.pass_seconds(9.0)
            line.send(answer=pb.Answer(call_id="c-1", ask_id=number, allowed=True))
            await stage.settle()
            assert call.state is CallState.ASKING
        await stage.pass_seconds(9.0)
        await stage.pass_seconds(10.0)
        assert call.outcome is not None
        assert call.outcome.cause == "question"
        line.send(close=pb.Close())
        await stage.settle()
        await all_have_ended(stage)


class Step(NamedTuple):
    """Something that happens to a session."""

    name: str
    of: Any = None

    async def __call__(self, stage: Stage, line: Line, number: int) -> Line:
        """Do it; return the line that the client has then."""
        match self.name:
            case "call":
                await run_call(stage, line, self.of, f"c-{number}")
            case "repeat":
                await run_call(stage, line, self.of, REPEATED)
            case "break":
                break_line(line, self.of)
            case "resume":
                if any(event.HasField("welcome") for event in line.down):
                    line = stage.attach(line, **self.of._asdict())
            case "wait":
                await stage.pass_seconds(self.of)
            case "settle":
                await stage.settle()
            case _:
                await self.of(stage, line)
        return line


STEP = st.one_of(
    st.builds(Step, st.just("call"), st.sampled_from(STATES)),
    st.builds(Step, st.just("repeat"), st.sampled_from(STATES)),
    st.builds(Step, st.just("break"), st.sampled_from(BREAKS)),
    st.builds(Step, st.just("resume"), st.sampled_from(RESUMED[1:])),
    st.builds(Step, st.just("wait"), st.sampled_from([0.006, 1.5, 16.0, LINGER_SECONDS, 601.0])),
    st.just(Step("settle")),
    st.builds(Step, st.just("do"), st.sampled_from(ENDINGS)),
)


@given(st.lists(STEP, max_size=12))
async def test_a_session_ends_after_any_sequence_of_events(steps: list[Step]) -> None:
    async with staged() as stage:
        line = stage.attach(answers=True, services=True)
        await stage.settle()
        for number, step in enumerate(steps):
            line = await step(stage, line, number)
        await stage.settle()
        for left in stage.lines:
            left.break_off()
        await all_have_ended(stage)
