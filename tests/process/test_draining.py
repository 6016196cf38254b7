"""Clocks, questions, the three isolations, and what retires workers: bounds, idleness, and the end of the daemon.

No test measures time. A clock that is to pass is short and the tool waits far longer; one that must not pass is
shown by a tool that outlives it where it stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Answer, Ask, Call, Kind, Session, Update
from toolcell_proto.v1 import operator_pb2

pytestmark = pytest.mark.anyio

WAIT = """
    import time
    from pathlib import Path
    from toolcell import ToolContext, tool

    @tool
    def wait(context: ToolContext, name: str = "go") -> str:
        context.update("I am there.")
        while not Path(name).exists():
            time.sleep(0.01)
        return name
"""

COUNT = """
    import os, time
    from toolcell import ToolContext, tool

    calls = 0
    me = int.from_bytes(os.urandom(6), "big")  # in a process namespace of its own every worker has the same number

    @tool(isolation="%s")
    def count(context: ToolContext, then: str = "") -> str:
        global calls
        calls += 1
        if then == "wait":
            context.update("I am there.")
            time.sleep(30)
        if then == "crash":
            os._exit(3)
        return f"{calls} in {me}"
"""

ASK = """
    import time
    from toolcell import Denied, ToolContext, tool

    @tool
    def ask(context: ToolContext) -> str:
        context.wait(context.ask("May I?", permission="it", patterns=["this"]))
        return "allowed"

    @tool(timeout=2, idle=2)
    def long(context: ToolContext) -> str:
        context.wait(context.ask("May I?"))
        return "allowed"

    @tool
    def anyway(context: ToolContext) -> str:
        try:
            context.wait(context.ask("May I?"))
        except Denied as denied:
            return f"went on without: {denied}"
        return "allowed"
"""


async def until_there(call: Call) -> None:
    async for event in call:
        if isinstance(event, Update):
            return
    pytest.fail(f"it ended before it was there: {call.outcome}")


async def workers(daemon: RunningDaemon) -> list[operator_pb2.WorkerInfo]:
    async with daemon.operate() as operator:
        answer = await operator.ask(operator.operator.ListWorkers, operator_pb2.ListWorkersRequest())
        return list(answer.workers)


async def until_workers(
    daemon: RunningDaemon, true: Callable[[list[operator_pb2.WorkerInfo]], bool]
) -> list[operator_pb2.WorkerInfo]:
    while True:
        if true(found := await workers(daemon)):
            return found
        await asyncio.sleep(0.02)


async def pid_of(call: Call) -> tuple[int, int]:
    """What `count` said: how many calls its process has had, and which that is."""
    calls, _, pid = (await call).check().text.split()
    return int(calls), int(pid)


# Clocks


@pytest.mark.slow
async def test_a_call_that_runs_too_long_times_out(daemon: RunningDaemon) -> None:
    daemon.tool("wait", WAIT)

    (daemon.project / "warm").touch()

    async with daemon.connect() as session:
        # The time of the caller counts the start of a worker, which others may delay.
        assert (await session.call("wait", {"name": "warm"})).ok
        outcome = await session.call("wait", timeout=3)

    assert (outcome.kind, outcome.cause, outcome.ran) == (Kind.timed_out, "timeout", True)
    assert outcome.stopped == "settled"
    assert outcome.text.endswith("I am there.")


@pytest.mark.slow
async def test_a_silent_call_times_out(daemon: RunningDaemon) -> None:
    daemon.tool("wait", WAIT)

    async with daemon.connect() as session:
        outcome = await session.call("wait", limits={"idle": 0.3})

    assert (outcome.kind, outcome.cause) == (Kind.timed_out, "idle")


async def test_a_call_that_finds_no_worker_in_time_is_refused_as_busy(daemon: RunningDaemon) -> None:
    daemon.config.write_text("[daemon]\nworkers = 1\n")
    daemon.reload()
    daemon.tool("wait", WAIT)

    async with daemon.connect() as session:
        first = session.call("wait")
        await until_there(first)
        second = await session.call("wait", limits={"queue": 0.2})
        (daemon.project / "go").touch()
        assert (await first).ok

    assert (second.kind, second.cause, second.ran) == (Kind.refused, "busy", False)
    assert "1 of 1" in second.message


async def test_the_timeout_of_a_caller_counts_the_queue(daemon: RunningDaemon) -> None:
    daemon.config.write_text("[daemon]\nworkers = 1\n")
    daemon.reload()
    daemon.tool("wait", WAIT)

    async with daemon.connect() as session:
        first = session.call("wait")
        await until_there(first)
        second = await session.call("wait", timeout=0.2)
        (daemon.project / "go").touch()
        assert (await first).ok

    assert (second.kind, second.cause, second.ran) == (Kind.timed_out, "timeout", False)


# Questions


@pytest.mark.slow
async def test_a_question_is_answered_or_denied(daemon: RunningDaemon) -> None:
    daemon.tool("ask", ASK)
    answers: list[Answer] = [True, False]

    async def answer(ask: Ask) -> Answer:
        assert (ask.question, ask.permission, tuple(ask.patterns)) == ("May I?", "it", ("this",))
        return answers.pop(0)

    async with daemon.connect(ask=answer) as session:
        allowed, denied = await session.call("ask"), await session.call("ask")

    assert (allowed.kind, allowed.text) == (Kind.ok, "allowed")
    assert denied.kind is Kind.denied


@pytest.mark.slow
async def test_where_nobody_is_there_a_question_is_denied(daemon: RunningDaemon) -> None:
    daemon.tool("ask", ASK)

    async with daemon.connect() as session:
        denied, went_on = await session.call("ask"), await session.call("ask_anyway")

    assert denied.kind is Kind.denied
    assert went_on.text == (
        "went on without: the user could not be asked, as python shows no questions; "
        "run it in a terminal: toolcell call ask_anyway"
    )


FORGETS = """
    import asyncio
    from toolcell import Denied, ToolContext, tool

    @tool
    def sync(context: ToolContext) -> str:
        context.ask("May I?")
        return "done"

    @tool
    async def later(context: ToolContext) -> str:
        context.ask("May I?")
        await context.ask("And this?")
        return "done"

    @tool
    async def confirms(context: ToolContext) -> str:
        return "removed" if context.ui.confirm("Remove it?") else "kept"

    @tool
    def types(context: ToolContext) -> str:
        return f"hello {context.ui.input('Name?')}"

    @tool
    async def selects(context: ToolContext) -> str:
        context.ui.select("Which?", ["a", "b"])
        return "done"

    @tool
    async def requests(context: ToolContext) -> str:
        context.request("session.start", prompt="x")
        return "done"

    @tool
    async def executes(context: ToolContext) -> str:
        context.exec("touch", "made")
        return "done"

    @tool
    async def together(context: ToolContext) -> str:
        await asyncio.gather(context.ask("May I?"), context.ask("And this?"))
        task = asyncio.create_task(context.ask("Or this?"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        return "asked"

    @tool
    def wrong_place(context: ToolContext) -> str:
        async def inner() -> str:
            try:
                context.wait(context.ask("May I?"))
            except RuntimeError:
                return "told"
            return "done"
        return asyncio.run(inner())
"""


FORGOTTEN = {
    "sync": "context.ask", "later": "context.ask", "confirms": "context.ui.confirm", "types": "context.ui.input",
    "selects": "context.ui.select", "requests": "context.request", "executes": "context.exec",
}  # fmt: skip


async def test_a_question_that_was_not_awaited_is_an_error_of_the_tool(daemon: RunningDaemon) -> None:
    daemon.tool("forgets", FORGETS)

    async def yes(_: Ask) -> Answer:
        return True

    async with daemon.connect(ask=yes) as session:
        for tool, called in FORGOTTEN.items():
            outcome = await session.call(f"forgets_{tool}")
            assert (outcome.kind, outcome.ran) == (Kind.tool_error, True), outcome
            assert f"{called}(…) was not awaited, so it did nothing, and the tool went on" in outcome.text
        assert (await session.call("forgets_together")).text == "asked"
        assert (await session.call("forgets_wrong_place")).text == "told"


@pytest.mark.slow
async def test_always_holds_for_the_session(daemon: RunningDaemon) -> None:
    daemon.tool("ask", ASK)
    asked: list[Ask] = []

    async def always(ask: Ask) -> Answer:
        asked.append(ask)
        return "always"

    for _ in range(2):
        async with daemon.connect(ask=always) as session:
            for _ in range(3):
                assert (await session.call("ask")).text == "allowed"

    assert len(asked) == 2


@pytest.mark.slow
async def test_no_clock_runs_while_a_question_is_open(daemon: RunningDaemon) -> None:
    daemon.tool("ask", ASK)
    daemon.tool("wait", WAIT)

    warm = False

    async with daemon.connect() as other:

        async def answer(ask: Ask) -> Answer:
            # Another call with the same clocks passes both of them meanwhile.
            if warm:
                meanwhile = await other.call("wait", timeout=3, limits={"idle": 2.5})
                assert meanwhile.kind is Kind.timed_out
            return True

        async with daemon.connect(ask=answer) as session:
            # The clock of the caller counts the start of a worker, which others may delay.
            warm = (await session.call("ask")).ok
            outcome = await session.call("ask_long", timeout=2)

    assert (outcome.kind, outcome.text) == (Kind.ok, "allowed"), outcome.message


@pytest.mark.slow
async def test_a_call_that_asks_gives_its_place_back_and_no_more(daemon: RunningDaemon) -> None:
    daemon.config.write_text("[daemon]\ncalls_per_session = 1\n")
    daemon.reload()
    daemon.tool("ask", ASK)
    daemon.tool("wait", WAIT)
    (daemon.project / "done").touch()
    sessions: list[Session] = []

    async def answer(ask: Ask) -> Answer:
        # The only place is free for a call that the answer depends on.
        return (await sessions[0].call("wait", {"name": "done"})).ok

    async with daemon.connect(ask=answer) as session:
        sessions.append(session)
        assert (await session.call("ask")).text == "allowed"
        await assert_one_at_a_time(daemon, session)


@pytest.mark.slow
async def test_a_worker_that_dies_with_a_question_open_gives_one_place_back(daemon: RunningDaemon) -> None:
    daemon.config.write_text("[daemon]\ncalls_per_session = 1\n")
    daemon.reload()
    daemon.tool("wait", WAIT)
    daemon.tool(
        "ask_and_die",
        """
        import os, threading
        from toolcell import ToolContext, tool

        @tool
        def ask_and_die(context: ToolContext) -> None:
            threading.Timer(0.1, os._exit, [3]).start()
            context.wait(context.ask("May I?"))
        """,
    )

    async def never(ask: Ask) -> Answer:
        await asyncio.sleep(60)
        return True

    async with daemon.connect(ask=never) as session:
        assert (await session.call("ask_and_die")).kind is Kind.crashed
        await assert_one_at_a_time(daemon, session)


async def assert_one_at_a_time(daemon: RunningDaemon, session: Session) -> None:
    """Of two calls one waits until the other has ended."""
    # With two warm workers at hand a call that is admitted runs at once, unless it has no place.
    async with daemon.connect() as one, daemon.connect() as other:
        warming = [one.call("wait", {"name": "warm"}), other.call("wait", {"name": "warm"})]
        for call in warming:
            await until_there(call)
        (daemon.project / "warm").touch()
        for call in warming:
            assert (await call).ok
    first, second = session.call("wait", {"name": "first"}), session.call("wait", {"name": "second"})
    await until_there(first)
    while True:
        states = await calls_of(daemon, session)
        if len(states) == 2:
            break
    assert sorted(states.values()) == ["running", "waiting"]
    (daemon.project / "second").touch()
    (daemon.project / "first").touch()
    assert ((await first).text, (await second).text) == ("first", "second")


async def calls_of(daemon: RunningDaemon, session: Session) -> dict[str, str]:
    async with daemon.operate() as operator:
        request = operator_pb2.ListCallsRequest(session_id=session.id)
        answer = await operator.ask(operator.operator.ListCalls, request)
        return {call.call_id: call.state for call in answer.calls if call.state != "ended"}


# Isolation


async def test_a_sessions_own_worker_keeps_its_state_and_runs_its_calls_in_order(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("count", COUNT % "session")

    async with daemon.connect() as one, daemon.connect() as other:
        ones = await asyncio.gather(*(pid_of(one.call("count")) for _ in range(3)))
        others = await pid_of(other.call("count"))

    assert [calls for calls, _ in ones] == [1, 2, 3]
    assert len({pid for _, pid in ones}) == 1
    assert others[0] == 1
    assert others[1] != ones[0][1]


async def test_a_sessions_own_worker_survives_an_abort_that_it_settled(daemon: RunningDaemon) -> None:
    daemon.tool("count", COUNT % "session")

    async with daemon.connect() as session:
        before = await pid_of(session.call("count"))
        call = session.call("count", {"then": "wait"})
        await until_there(call)
        call.abort()
        aborted = await call
        after = await session.call("count")

    assert (aborted.kind, aborted.stopped) == (Kind.aborted, "settled")
    assert after.text == f"3 in {before[1]}"
    assert not after.facts.state_lost


async def test_the_call_after_a_crash_is_told_that_the_state_is_lost(daemon: RunningDaemon) -> None:
    daemon.tool("count", COUNT % "session")

    async with daemon.connect() as session:
        await session.call("count")
        crashed = await session.call("count", {"then": "crash"})
        after, then = await session.call("count"), await session.call("count")

    assert (crashed.kind, crashed.cause) == (Kind.crashed, "exit 3")
    assert (after.text[0], after.facts.state_lost) == ("1", True)
    assert (then.text[0], then.facts.state_lost) == ("2", False)


SLOW = """
    import time
    from pathlib import Path
    from toolcell import tool

    # Loaded once to be described, in its own directory; after that it waits for a word.
    while Path("loaded").exists() and not Path("go").exists():
        Path("starting").touch()
        time.sleep(0.01)

    @tool(isolation="call")
    def slow() -> None: ...
"""


@pytest.mark.slow
async def test_a_worker_whose_call_gave_up_serves_the_next_one(daemon: RunningDaemon) -> None:
    daemon.tool("slow", SLOW)

    async with daemon.connect() as session:
        (daemon.project / "loaded").touch()
        call = session.call("slow")
        await until_exists(daemon.project / "starting")
        call.abort()
        outcome = await call
        (daemon.project / "go").touch()
        (idle,) = await until_workers(daemon, lambda found: [worker.state for worker in found] == ["idle"])
        after = await session.call("slow")

    assert (outcome.kind, outcome.ran) == (Kind.aborted, False)
    assert (after.kind, after.facts.worker_id) == (Kind.ok, idle.worker_id)


@pytest.mark.slow
async def test_restarting_workers_spares_no_worker_that_starts_and_no_call(daemon: RunningDaemon) -> None:
    daemon.tool("slow", SLOW)

    async with daemon.connect() as session:
        (daemon.project / "loaded").touch()
        call = session.call("slow")
        await until_exists(daemon.project / "starting")
        async with daemon.operate() as operator:
            answer = await operator.ask(
                operator.operator.RestartWorkers, operator_pb2.RestartWorkersRequest()
            )
        (daemon.project / "go").touch()
        outcome = await call

    assert answer.retired == 1
    assert outcome.ok, outcome.message


async def until_exists(path: Path) -> None:
    while True:
        if path.exists():
            return
        await asyncio.sleep(0.01)


# Workers that go


@pytest.mark.slow
async def test_the_least_recently_used_idle_worker_makes_room(daemon: RunningDaemon) -> None:
    # Without a sandbox, as the tools tell their processes' numbers as the host knows them.
    daemon.config.write_text('[daemon]\nworkers = 2\n[defaults]\nsandbox = "none"\n')
    daemon.reload()
    for name in ("one", "two", "three"):
        daemon.tool(
            name,
            f"from toolcell import tool\n\n@tool\ndef {name}() -> int:\n    import os; return os.getpid()\n",
        )

    async with daemon.connect() as session:
        one, two = await call_details(session, "one"), await call_details(session, "two")
        assert await call_details(session, "one") == one
        three = await call_details(session, "three")
        left = {worker.pid for worker in await workers(daemon)}

        assert left == {one, three}
        assert await call_details(session, "two") != two


async def call_details(session: Session, tool: str) -> Any:
    return (await session.call(tool)).check().details


@pytest.mark.slow
async def test_an_idle_worker_retires(daemon: RunningDaemon) -> None:
    daemon.config.write_text('[daemon]\nworker_idle = "200ms"\n')
    daemon.reload()
    daemon.tool("count", COUNT % "worker")

    async with daemon.connect() as session:
        first = await pid_of(session.call("count"))
        await until_workers(daemon, lambda found: not found)
        second = await pid_of(session.call("count"))

    assert (first[0], second[0]) == (1, 1)
    assert first[1] != second[1]


async def test_a_session_runs_so_many_calls_at_once(daemon: RunningDaemon) -> None:
    daemon.config.write_text("[daemon]\ncalls_per_session = 1\n")
    daemon.reload()
    daemon.tool("wait", WAIT)
    (daemon.project / "third").touch()

    async with daemon.connect() as session, daemon.connect() as other:
        await assert_one_at_a_time(daemon, session)
        # The bound is each session's own.
        held = session.call("wait", {"name": "fourth"})
        await until_there(held)
        assert (await other.call("wait", {"name": "third"})).text == "third"
        (daemon.project / "fourth").touch()
        assert (await held).ok


# The end of the daemon


@pytest.mark.slow
async def test_a_draining_daemon_lets_running_calls_finish_and_refuses_new_ones(
    make_daemon: Callable[[], RunningDaemon],
) -> None:
    daemon = make_daemon()
    daemon.start("--drain", "20")
    daemon.tool("wait", WAIT)

    async with daemon.connect() as session:
        running = session.call("wait")
        await until_there(running)
        assert daemon.process is not None
        daemon.process.terminate()
        await until_draining(daemon)
        late = await session.call("wait")
        (daemon.project / "go").touch()
        finished = await running
    assert daemon.wait() == 0

    assert (late.kind, late.cause, late.ran) == (Kind.refused, "draining", False)
    assert (finished.kind, finished.text) == (Kind.ok, "go")


@pytest.mark.slow
async def test_a_drain_that_lasts_too_long_stops_what_runs(make_daemon: Callable[[], RunningDaemon]) -> None:
    daemon = make_daemon()
    daemon.start("--drain", "0.3")
    daemon.tool("wait", WAIT)

    async with daemon.connect() as session:
        running = session.call("wait")
        await until_there(running)
        assert daemon.process is not None
        daemon.process.terminate()
        outcome = await running
    assert daemon.wait() == 0

    assert (outcome.kind, outcome.cause, outcome.stopped) == (Kind.aborted, "daemon_stopping", "settled")


async def until_draining(daemon: RunningDaemon) -> None:
    async with daemon.operate() as operator:
        while True:
            status = await operator.ask(operator.operator.GetStatus, operator_pb2.GetStatusRequest())
            if status.state == "draining":
                return
            await asyncio.sleep(0.01)
