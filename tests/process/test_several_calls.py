"""Several calls in one process of an MCP server: what each gets, what a stop of one means for it, and what is proven."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
from tests import servers
from tests.daemons import RunningDaemon
from tests.process.test_mcp_servers import (
    SECONDS_MAX,
    WRITABLE,
    entry,
    processes,
    serve,
    text_of,
    until,
    workers,
)

from toolcell.client import Call, Outcome, Progress, Session
from toolcell_proto.v1 import operator_pb2

pytestmark = pytest.mark.anyio

CROWD: Final = Path(servers.__file__).with_name("crowd.py")
PATIENT: Final = '[daemon]\ncalls_per_session = 64\nload_timeout = "60s"\nabort_grace = "5s"\n'
"""A grace in which a server that is well answers a ping on any machine."""
SHORT: Final = PATIENT.replace("5s", "300ms")

PROVEN: Final = "the process in which it was cancelled has ended"


class Place:
    """The files by which the calls of a test and the test meet."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self.begun = daemon.directory / "begun"
        self.gate = daemon.directory / "gate"
        self.ticks = daemon.directory / "ticks"

    @property
    def waiting(self) -> dict[str, str]:
        """The arguments of a call that waits for the gate."""
        return {"begun": str(self.begun), "gate": str(self.gate)}

    @property
    def counting(self) -> dict[str, str]:
        """The arguments of a call that counts for ever."""
        return {"begun": str(self.ticks)}

    async def until_begun(self, count: int) -> None:
        await until(lambda: size(self.begun) == count)

    async def until_ticking(self) -> None:
        before = size(self.ticks)
        await until(lambda: size(self.ticks) > before + 3)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def crowd(daemon: RunningDaemon, options: str = "concurrency = 64", daemon_section: str = PATIENT) -> Place:
    """Configure the server that takes several calls."""
    shutil.copy(CROWD, daemon.project / "crowd.py")
    writable = WRITABLE.format(base="auto", directory=daemon.directory) + 'queue = "10m"\n'
    command = json.dumps([sys.executable, "-I", "${project}/crowd.py"])
    serve(daemon, f"\n[source.crowd]\nmcp = {command}\n{options}\n" + entry(), daemon_section + writable)
    return Place(daemon)


async def worker_of(session: Session) -> str:
    """The worker that has a call of now."""
    outcome = await session.call("crowd_pid")
    assert outcome.ok, outcome
    return outcome.facts.worker_id


def crowds(daemon: RunningDaemon) -> list[int]:
    """The processes of the server."""
    return processes(f"{daemon.project}/crowd.py")


async def logged(daemon: RunningDaemon, about: str) -> list[str]:
    """The lines in the log of a tool, or of a server."""
    request = operator_pb2.TailLogsRequest(tool_or_call=about)
    async with daemon.operate() as operator:
        parts = [part async for part in operator.watch(operator.operator.TailLogs, request)]
    return [line.text.strip() for part in parts for line in part.lines]


async def all_of(calls: list[Call]) -> list[Outcome]:
    return [await call for call in calls]


@pytest.mark.slow
async def test_of_forty_calls_the_thirty_that_are_not_aborted_are_right_and_the_process_goes(
    daemon: RunningDaemon,
) -> None:
    place = crowd(daemon)
    async with daemon.connect() as session:
        old = await worker_of(session)
        (process,) = crowds(daemon)
        kept = [session.call("crowd_wait", {**place.waiting, "text": str(number)}) for number in range(30)]
        stopped = [session.call("crowd_tick", place.counting) for _ in range(10)]
        await place.until_begun(30)
        await place.until_ticking()
        assert len(workers(daemon)) == 1
        for call in stopped:
            call.abort("enough")
        new = await worker_of(session)
        assert new != old, "a call in between had the process in which others were cancelled"
        endings = {(outcome.kind, outcome.stopped) for outcome in await all_of(stopped)}
        assert endings == {("aborted", "unconfirmed")}
        await place.until_ticking()  # it is not said to have stopped, and it has not
        place.gate.touch()
        assert [outcome.text for outcome in await all_of(kept)] == [str(number) for number in range(30)]
        await until(lambda: process not in crowds(daemon))
        ticks = size(place.ticks)
        assert await worker_of(session) == new
        assert size(place.ticks) == ticks
    async with asyncio.timeout(SECONDS_MAX):  # the daemon hears of the end a moment after it
        for call in stopped:
            while not any(PROVEN in line for line in await logged(daemon, call.id)):
                await asyncio.sleep(0.02)


async def test_an_aborted_call_is_proven_if_its_neighbours_end_within_the_grace(
    daemon: RunningDaemon,
) -> None:
    place = crowd(daemon)
    async with daemon.connect() as session:
        kept = session.call("crowd_wait", {**place.waiting, "text": "kept"})
        stopped = session.call("crowd_tick", place.counting)
        await place.until_begun(1)
        await place.until_ticking()
        stopped.abort("enough")
        place.gate.touch()
        assert (await kept).text == "kept"
        outcome = await stopped
        ticks = size(place.ticks)
        assert (outcome.kind, outcome.stopped) == ("aborted", "killed"), outcome
        assert crowds(daemon) == []
        await worker_of(session)
        assert size(place.ticks) == ticks


async def test_a_server_that_is_blocked_ends_with_all_of_its_calls_and_each_says_why(
    daemon: RunningDaemon,
) -> None:
    place = crowd(daemon, daemon_section=SHORT)
    async with daemon.connect() as session:
        beside = session.call("crowd_wait", place.waiting)
        await place.until_begun(1)
        blocking = session.call("crowd_block", place.counting)
        await place.until_ticking()
        blocking.abort("enough")
        outcome = await blocking
        ticks = size(place.ticks)
        assert (outcome.kind, outcome.stopped) == ("aborted", "killed"), outcome
        other = await beside
        assert (other.kind, other.cause) == ("crashed", "server_ended")
        assert f"because another call of it, {blocking.id}, did not stop" in other.message
        await worker_of(session)
        assert size(place.ticks) == ticks


async def test_a_crash_under_twenty_calls_is_told_to_each_and_restarted_once(daemon: RunningDaemon) -> None:
    place = crowd(daemon)
    async with daemon.connect() as session:
        old = await worker_of(session)
        calls = [session.call("crowd_wait", place.waiting) for _ in range(19)]
        await place.until_begun(19)
        last = session.call("crowd_dies", {"begun": str(place.begun), "gate": str(place.begun)})
        for outcome in await all_of([*calls, last]):
            assert (outcome.kind, outcome.cause) == ("crashed", "exit 7"), outcome
            assert "dying" in outcome.message
        new = await worker_of(session)
        (worker,) = workers(daemon)
        assert (worker.worker_id, worker.calls) == (new, 1)
        assert int(new.removeprefix("w-")) == int(old.removeprefix("w-")) + 1


@pytest.mark.slow
async def test_five_crashes_in_a_row_are_quarantine_whatever_ran_beside_them(daemon: RunningDaemon) -> None:
    place = crowd(daemon)
    place.gate.touch()
    async with daemon.connect() as session:
        for _ in range(5):
            calls = [session.call("crowd_dies", place.waiting) for _ in range(4)]
            assert {outcome.kind for outcome in await all_of(calls)} == {"crashed"}
        refused = await session.call("crowd_pid")
        assert (refused.kind, refused.cause) == ("refused", "quarantined")
        assert (await session.call("plain_pid")).ok


async def test_a_server_over_its_limit_ends_with_all_of_its_calls_and_each_is_told_the_limit(
    daemon: RunningDaemon,
) -> None:
    place = crowd(daemon, 'memory = "200MiB"')
    async with daemon.connect() as session:
        calls = [session.call("crowd_wait", place.waiting) for _ in range(3)]
        await place.until_begun(3)
        calls.append(session.call("crowd_takes", {**place.waiting, "mib": 400}))
        for outcome in await all_of(calls):
            assert (outcome.kind, outcome.cause, outcome.stopped) == ("limit_exceeded", "memory", "killed"), (
                outcome
            )
            assert "toolcell config set source.crowd.memory" in outcome.message
        await worker_of(session)
        assert len(crowds(daemon)) == 1


async def test_the_timeout_of_a_call_is_its_own(daemon: RunningDaemon) -> None:
    place = crowd(daemon, 'on_abort = "keep"\n[tool.crowd_tick]\ntimeout = "500ms"')
    async with daemon.connect() as session:
        kept = session.call("crowd_wait", {**place.waiting, "text": "kept"})
        await place.until_begun(1)
        outcome = await session.call("crowd_tick", place.counting)
        assert (outcome.kind, outcome.stopped) == ("timed_out", "unconfirmed"), outcome
        place.gate.touch()
        assert (await kept).text == "kept"


async def test_a_server_that_is_kept_goes_on_and_says_so(daemon: RunningDaemon) -> None:
    place = crowd(daemon, 'on_abort = "keep"')
    async with daemon.connect() as session:
        before = await worker_of(session)
        call = session.call("crowd_tick", place.counting)
        await place.until_ticking()
        call.abort("enough")
        outcome = await call
        assert (outcome.kind, outcome.stopped) == ("aborted", "unconfirmed"), outcome
        assert 'on_abort is "keep"' in outcome.message
        assert await worker_of(session) == before
        await place.until_ticking()


async def test_a_blocked_server_is_not_kept(daemon: RunningDaemon) -> None:
    place = crowd(daemon, 'on_abort = "keep"', SHORT)
    async with daemon.connect() as session:
        call = session.call("crowd_block", place.counting)
        await place.until_ticking()
        call.abort("enough")
        outcome = await call
        ticks = size(place.ticks)
        assert (outcome.kind, outcome.stopped) == ("aborted", "killed"), outcome
        await worker_of(session)
        assert size(place.ticks) == ticks


async def test_progress_is_of_the_call_that_it_names(daemon: RunningDaemon) -> None:
    place = crowd(daemon)
    async with daemon.connect() as session:
        calls = [session.call("crowd_steps", {**place.waiting, "text": text}) for text in ("one", "two")]
        await place.until_begun(2)
        place.gate.touch()
        for call, text in zip(calls, ("one", "two"), strict=True):
            told = [event.message async for event in call if isinstance(event, Progress)]
            assert ((await call).text, told) == (text, [text])


async def test_what_is_printed_while_several_calls_run_is_in_the_log_of_the_server(
    daemon: RunningDaemon,
) -> None:
    place = crowd(daemon)
    async with daemon.connect() as session:
        waiting = session.call("crowd_wait", place.waiting)
        await place.until_begun(1)
        assert await text_of(session, "crowd_says", text="of nobody") == "said"
        place.gate.touch()
        await waiting
        assert await text_of(session, "crowd_says", text="of a call") == "said"
    of_server, of_calls = await logged(daemon, "crowd"), await logged(daemon, "crowd_says")
    assert ("of nobody" in of_server, "of nobody" in of_calls) == (True, False)
    assert ("of a call" in of_server, "of a call" in of_calls) == (False, True)


async def test_a_question_of_a_server_with_several_calls_is_refused_with_what_helps(
    daemon: RunningDaemon,
) -> None:
    place = crowd(daemon)
    async with daemon.connect() as session:
        waiting = session.call("crowd_wait", place.waiting)
        await place.until_begun(1)
        answer = json.loads(await text_of(session, "crowd_asks"))
        assert 'share = "session"' in answer["error"]["message"]
        place.gate.touch()
        await waiting


@pytest.mark.slow
async def test_a_server_that_lies_and_floods_harms_no_call_beside_it(daemon: RunningDaemon) -> None:
    place = crowd(daemon)
    async with daemon.connect() as session:
        waiting = session.call("crowd_wait", {**place.waiting, "text": "mine"})
        await place.until_begun(1)
        lying = [session.call("crowd_lies") for _ in range(3)]
        assert {outcome.text for outcome in await all_of(lying)} == {"true"}
        assert await text_of(session, "plain_echo", text="another server") == "another server"
        place.gate.touch()
        assert (await waiting).text == "mine"


async def test_more_calls_than_places_wait_and_have_no_second_process(daemon: RunningDaemon) -> None:
    place = crowd(daemon, "concurrency = 2")
    async with daemon.connect() as session:
        calls = [session.call("crowd_wait", place.waiting) for _ in range(5)]
        await place.until_begun(2)
        (worker,) = workers(daemon)
        assert (worker.state, worker.calls) == ("busy", 2)
        place.gate.touch()
        assert all(outcome.ok for outcome in await all_of(calls))
        assert [worker.calls for worker in workers(daemon)] == [5]


@pytest.mark.slow
async def test_a_hundred_sessions_have_one_process(daemon: RunningDaemon) -> None:
    place = crowd(daemon, "concurrency = 128\nprocesses = 300")
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(daemon.connect()) for _ in range(100)]
        calls = [session.call("crowd_wait", place.waiting) for session in sessions]
        await place.until_begun(100)
        assert len(workers(daemon)) == len(crowds(daemon)) == 1
        place.gate.touch()
        assert all(outcome.ok for outcome in await all_of(calls))


@pytest.mark.parametrize(
    "count", [pytest.param(10, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.nightly)]
)
async def test_sessions_with_servers_of_their_own_leave_none(count: int, daemon: RunningDaemon) -> None:
    crowd(daemon, 'share = "session"', PATIENT.replace("[daemon]", "[daemon]\nworkers = 128"))
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(daemon.connect()) for _ in range(count)]
        used = await asyncio.gather(*(worker_of(session) for session in sessions))
        assert len(set(used)) == len(crowds(daemon)) == count
    await until(lambda: not crowds(daemon))
