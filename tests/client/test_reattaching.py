"""What becomes of calls when the line drops, the daemon restarts, or another client takes over."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from toolcell.client import Answer, Ask, Gap, Kind, Log, Refused, Unavailable, connect
from toolcell.client._transport import lease
from toolcell_proto.v1 import toolcell_pb2 as pb

from .scripted import Line, aborted, body, daemon, echo, ok, status, until_closed

pytestmark = pytest.mark.anyio


def info(call: pb.Call) -> pb.CallInfo:
    return pb.CallInfo(call_id=call.call_id, tool=call.tool, state="running")


async def test_a_call_that_the_daemon_knows_goes_on_and_its_outcome_arrives_once(tmp_path: Path) -> None:
    calls: list[pb.Call] = []
    log = pb.Event(log=pb.Log(source="stdout", text="before"))

    async def until_the_drop(line: Line) -> None:
        await line.welcome()
        calls.append(await line.hear_call())
        log.call_id = calls[0].call_id
        await line.say(pb.Event(call_id=log.call_id, accepted=pb.Accepted()), log)
        await line.drop()

    async def after(line: Line) -> None:
        opening = await line.welcome(resumed=True, calls=[info(calls[0])])
        assert (opening.session_id, opening.resume_token) == ("s-1", "secret")
        assert scripted.acknowledged[-1] == 3
        await line.say_again(log)
        gap = pb.Event(call_id=log.call_id, gap=pb.Gap(count=5))
        await line.say(gap, ok(log.call_id, "whole"), ok(log.call_id, "twice"))
        await until_closed(line)

    async with daemon(tmp_path, until_the_drop, after) as scripted:
        async with connect(scripted.socket, daemon="running") as session:
            call = session.call("echo", {"a": 1})
            assert [event async for event in call] == [Log("", "stdout", "before"), Gap(5)]
            assert (await call).text == "whole"
        assert scripted.heard == ["open", "call", "open", "close"]


async def test_a_call_that_did_not_arrive_is_sent_again_with_all_that_was_said_about_it(
    tmp_path: Path,
) -> None:
    first: list[pb.Call] = []

    async def until_the_drop(line: Line) -> None:
        await line.welcome()
        first.append(await line.hear_call())
        await line.hear()  # the abort
        await line.drop()

    async def after(line: Line) -> None:
        await line.welcome(resumed=True)
        again = await line.hear_call()
        assert again == first[0]
        heard = await line.hear()
        assert heard is not None
        await line.say(aborted(heard.abort.call_id, heard.abort.reason))
        await until_closed(line)

    async with (
        daemon(tmp_path, until_the_drop, after) as scripted,
        connect(scripted.socket, daemon="running") as session,
    ):
        call = session.call("echo", {"a": 1}, agent_name="reviewer", timeout=3)
        call.abort("by hand")
        assert (await call).message == "by hand"


async def test_an_answer_is_given_again(tmp_path: Path) -> None:
    calls: list[pb.Call] = []

    async def until_the_drop(line: Line) -> None:
        await line.welcome()
        calls.append(await line.hear_call())
        await line.say(pb.Event(call_id=calls[0].call_id, ask=pb.Ask(ask_id=1)))
        await line.hear()
        await line.drop()

    async def after(line: Line) -> None:
        await line.welcome(resumed=True, calls=[info(calls[0])])
        heard = await line.hear()
        assert heard is not None
        assert heard.answer.allowed
        await line.say(ok(heard.answer.call_id, "allowed"))
        await until_closed(line)

    async def yes(ask: Ask) -> Answer:
        return True

    async with (
        daemon(tmp_path, until_the_drop, after) as scripted,
        connect(scripted.socket, daemon="running", ask=yes) as session,
    ):
        assert (await session.call("drop")).text == "allowed"


async def test_a_result_cut_in_the_middle_by_a_drop_is_whole(tmp_path: Path) -> None:
    calls: list[pb.Call] = []
    whole = body("z" * 10_000)

    def part(start: int, end: int) -> pb.Event:
        return pb.Event(
            chunk=pb.Chunk(call_id=calls[0].call_id, data=whole[start:end], last=end >= len(whole))
        )

    async def until_the_drop(line: Line) -> None:
        await line.welcome()
        calls.append(await line.hear_call())
        head = pb.Outcome(kind=pb.OUTCOME_KIND_OK, body=whole[:3000], more=True, ran=True)
        sent.extend((pb.Event(call_id=calls[0].call_id, outcome=head), part(3000, 6000)))
        await line.say(*sent)
        await line.drop()

    async def after(line: Line) -> None:
        await line.welcome(resumed=True, calls=[info(calls[0])])
        assert scripted.acknowledged[-1] == 1
        for event in sent:
            await line.say_again(event)
        await line.say(part(6000, 20_000))
        await until_closed(line)

    sent: list[pb.Event] = []
    async with (
        daemon(tmp_path, until_the_drop, after) as scripted,
        connect(scripted.socket, daemon="running") as session,
    ):
        assert (await session.call("echo")).text == "z" * 10_000


async def test_after_a_restart_open_calls_are_lost_and_the_session_goes_on(tmp_path: Path) -> None:
    async def until_the_restart(line: Line) -> None:
        await line.welcome()
        await line.hear_call()
        await line.drop()

    async def restarted(line: Line) -> None:
        scripted.session_id, scripted.number, scripted.generation = "s-2", 0, 7
        await echo(line)

    async with (
        daemon(tmp_path, until_the_restart, restarted) as scripted,
        connect(scripted.socket, daemon="running") as session,
    ):
        lost = await session.call("echo")
        assert (lost.kind, lost.cause, lost.ran) == (Kind.internal, "connection_lost", True)
        assert lost.side_effects_possible
        assert (await session.call("echo", {"b": 2})).text == '{"b":2}'
        assert session.id == "s-2"
        assert session.catalog.generation == 7


async def test_a_restarted_daemon_that_counts_anew_has_another_catalog(tmp_path: Path) -> None:
    """Its first generation is as little the last daemon's first as its first session is."""
    seen: list[str] = []

    async def until_the_restart(line: Line) -> None:
        await line.welcome()
        await line.hear_call()
        await line.drop()

    async def restarted(line: Line) -> None:
        scripted.session_id, scripted.number, scripted.description = "s-2", 0, "Says it anew."
        await echo(line)

    async with (
        daemon(tmp_path, until_the_restart, restarted) as scripted,
        connect(
            scripted.socket,
            daemon="running",
            on_catalog=lambda catalog: seen.append(catalog.tools["echo"].description),
        ) as session,
    ):
        await session.call("echo")
        assert (await session.call("echo")).ok
        assert session.catalog.generation == 1
        assert seen == ["Says it anew."]


async def test_when_the_linger_is_over_open_calls_are_lost_and_the_next_call_tries_again(
    tmp_path: Path,
) -> None:
    async def until_the_drop(line: Line) -> None:
        assert (await line.welcome()).linger_seconds == 0
        await line.hear_call()
        await line.drop()

    async with (
        daemon(tmp_path, until_the_drop, echo) as scripted,
        connect(scripted.socket, daemon="running", linger=0) as session,
    ):
        lost = await session.call("echo")
        assert (lost.kind, lost.cause, lost.ran) == (Kind.internal, "connection_lost", True)
        assert "cut" in lost.message
        assert scripted.heard == ["open", "call"]
        assert (await session.call("echo")).ok


async def test_a_daemon_that_is_gone_for_good_never_ran_the_call(tmp_path: Path) -> None:
    async def until_the_drop(line: Line) -> None:
        await line.welcome()
        await line.hear_call()
        await line.drop()

    async with AsyncExitStack() as stack:
        async with daemon(tmp_path, until_the_drop) as scripted:
            opened = connect(scripted.socket, daemon="running", linger=0)
            session = await stack.enter_async_context(opened)
            assert (await session.call("echo")).ran
        lost = await session.call("echo")
        assert (lost.kind, lost.cause, lost.ran) == (Kind.internal, "connection_lost", False)
        with pytest.raises(Unavailable, match="lost"):
            await session.read_output("o-1")


async def test_a_session_that_was_taken_over_ends_its_calls_and_takes_no_more(tmp_path: Path) -> None:
    async def superseded(line: Line) -> None:
        await line.welcome()
        await line.hear_call()
        await line.refuse(
            status(grpc.StatusCode.ABORTED, "SUPERSEDED", "another client took the session over")
        )

    async with (
        daemon(tmp_path, superseded) as scripted,
        connect(scripted.socket, daemon="running") as session,
    ):
        taken = await session.call("echo")
        assert (taken.kind, taken.cause, taken.ran) == (Kind.internal, "superseded", True)
        late = await session.call("echo")
        assert (late.kind, late.cause, late.ran) == (Kind.refused, "superseded", False)
        with pytest.raises(Refused, match="took the session over"):
            await session.reload()


async def test_the_token_alone_resumes_a_session_and_finds_its_calls(tmp_path: Path) -> None:
    async def resumed(line: Line) -> None:
        calls = [
            pb.CallInfo(call_id="c-1", tool="index", state="ended"),
            pb.CallInfo(call_id="c-2", tool="lint"),
        ]
        opening = await line.welcome(resumed=True, calls=calls)
        assert (opening.session_id, opening.resume_token) == ("s-1", "secret")
        await line.say(ok("c-1", "was done"))
        await line.hear_call()
        await line.say(ok("c-2", "is done"), ok("c-3", "new"))
        await until_closed(line)

    async with (
        daemon(tmp_path, resumed) as scripted,
        connect(scripted.socket, daemon="running", resume="s-1.secret") as session,
    ):
        assert sorted(session.calls) == ["c-1", "c-2"]
        await session.call("echo", call_id="c-3")
        assert [(call.tool, (await call).text) for call in session.calls.values()] == [
            ("index", "was done"),
            ("lint", "is done"),
        ]


async def test_a_resume_token_that_is_none_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="resume"):
        async with connect(resume="s-1", daemon="running"):
            pass


async def test_a_reload_survives_a_drop(tmp_path: Path) -> None:
    async def until_the_drop(line: Line) -> None:
        await line.welcome()
        await line.hear()
        await line.drop()

    async def after(line: Line) -> None:
        await line.welcome(resumed=True)
        heard = await line.hear()
        assert heard is not None
        assert heard.HasField("refresh")
        scripted.generation = 2
        await line.say(line.catalog(answers=True))
        await until_closed(line)

    async with (
        daemon(tmp_path, until_the_drop, after) as scripted,
        connect(scripted.socket, daemon="running") as session,
    ):
        assert (await session.reload()).generation == 2


async def test_a_call_that_a_draining_node_refuses_goes_to_the_next_node(tmp_path: Path) -> None:
    """What runs on the node ends there first; what is aborted meanwhile is sent nowhere."""
    refused = status(grpc.StatusCode.UNAVAILABLE, "DRAINING", "the daemon is stopping")
    calls: list[pb.Call] = []

    async def drains(line: Line) -> None:
        await line.welcome(fence=1)
        calls.extend([await line.hear_call() for _ in range(3)])
        await line.say(*(pb.Event(call_id=call.call_id, refused=refused) for call in calls[1:]))
        heard = await line.hear()  # of what runs there, and of nothing that was refused
        assert heard is not None
        assert heard.abort.call_id == calls[0].call_id
        await line.say(aborted(calls[0].call_id))
        await until_closed(line)

    async def next_one(line: Line) -> None:
        assert (await line.welcome(fence=2)).moved
        assert await line.hear_call() == calls[1]
        await line.say(ok(calls[1].call_id, "elsewhere"))
        await until_closed(line)

    async with daemon(tmp_path, drains, next_one) as scripted:
        async with connect(scripted.socket, daemon="running") as session:
            runs, goes_on, is_aborted = (session.call("echo", {"a": number}) for number in range(3))
            while len(calls) < 3 or session._connection.calls[is_aborted.id].sent:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.01)
            is_aborted.abort("no more")
            assert (await is_aborted).message == "no more, before it was sent"
            runs.abort()
            assert (await runs).kind is Kind.aborted
            assert (await goes_on).text == "elsewhere"
        assert scripted.heard.count("call") == 4


async def test_a_call_that_a_draining_daemon_of_no_cluster_refuses_is_refused(tmp_path: Path) -> None:
    refused = status(grpc.StatusCode.UNAVAILABLE, "DRAINING", "the daemon is stopping")

    async def drains(line: Line) -> None:
        await line.welcome()
        await line.say(pb.Event(call_id=(await line.hear_call()).call_id, refused=refused))
        await until_closed(line)

    async with daemon(tmp_path, drains) as scripted, connect(scripted.socket, daemon="running") as session:
        assert (await session.call("echo")).cause == "draining"


@pytest.mark.parametrize("has_ended", [False, True], ids=["alive", "ended"])
async def test_a_client_that_was_silent_for_a_lease_sends_its_call_where_the_session_is(
    has_ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its loop was blocked, or its machine slept: it has not read yet that the node has ended the stream."""
    over = asyncio.Event()

    async def before(line: Line) -> None:
        await line.welcome(fence=1)
        if has_ended:
            await over.wait()
            await line.drop()
        await answers(line)

    async def after(line: Line) -> None:
        await line.welcome(fence=2)
        await answers(line)

    async def answers(line: Line) -> None:
        await line.say(ok((await line.hear_call()).call_id, "once"))
        await until_closed(line)

    async with (
        daemon(tmp_path, before, after) as scripted,
        connect(scripted.socket, daemon="running") as session,
    ):
        later = lease._now() + 31
        monkeypatch.setattr(lease, "_now", lambda: later)
        over.set()
        assert (await session.call("echo")).text == "once"
    expected = ["open", *["open"] * has_ended, "call", "close"]
    assert [sort for sort in scripted.heard if sort != "acknowledged"] == expected
