"""The client without async, in front of a real daemon: what blocks, who runs what, and what an interrupt does.

A tool says that it is there by opening a pipe that the test opens as well, and that it has stopped by leaving a file.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from tests.daemons import START_SECONDS_MAX, RunningDaemon

from toolcell.client import Answer, Ask, Catalog, Event, Gap, Kind, Log, Refused, Started, Unavailable
from toolcell.client.blocking import Session, connect

TOOLS = """
import time
from pathlib import Path
from toolcell import Abort, ToolContext, tool

@tool
def double(n: int) -> int:
    return 2 * n

@tool
def counts(n: int, context: ToolContext) -> str:
    for i in range(n):
        context.log.info("%d", i)
    return "done"

@tool
def waits(directory: str, context: ToolContext) -> None:
    try:
        context.log.info("there")
        open(directory + "/there", "w").close()
        time.sleep(60)
    finally:
        open(directory + "/stopped", "w").close()

@tool
def lingers(directory: str) -> None:
    try:
        open(directory + "/there", "w").close()
        time.sleep(60)
    finally:
        open(directory + "/asked", "w").close()
        open(directory + "/free").close()

@tool
def meets(mine: str, theirs: str, first: bool) -> str:
    for path in (mine, theirs) if first else (theirs, mine):
        open(path, "w" if path == mine else "r").close()
    return "met"

@tool
async def asks(context: ToolContext) -> str:
    answer = await context.ask("May I?")
    return "yes"

@tool
def long() -> str:
    return "".join(f"line {n}\\n" for n in range(10_000))
"""

HEAD = """
import os, signal, sys, threading, time
from toolcell.client import blocking

socket, directory = sys.argv[1:]
there = {"directory": directory}

def say(*words):
    print(*words, flush=True)

"""


@pytest.fixture
def daemon(daemon: RunningDaemon) -> RunningDaemon:
    """One with the tools of this file, which has the patience for a tool that lingers."""
    daemon.config.write_text(daemon.config.read_text() + '\n[daemon]\nabort_grace = "50s"\n')
    daemon.reload()
    daemon.tool("t", TOOLS)
    return daemon


@pytest.fixture
def there(daemon: RunningDaemon) -> Path:
    """Where tools say that they are there."""
    for name in ("there", "asked", "free"):
        os.mkfifo(daemon.directory / name)
    return daemon.directory


def session_of(daemon: RunningDaemon, **options: Any) -> AbstractContextManager[Session]:
    return connect(daemon.socket, daemon="running", directory=daemon.project, **options)


@contextmanager
def script(daemon: RunningDaemon, source: str) -> Generator[subprocess.Popen[str]]:
    """A program of its own that may be interrupted; ended with the test, whatever it does."""
    command = [sys.executable, "-c", HEAD + textwrap.dedent(source), daemon.socket, str(daemon.directory)]
    with subprocess.Popen(
        command, cwd=daemon.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.slow
def test_a_call_returns_its_outcome(daemon: RunningDaemon) -> None:
    with session_of(daemon) as session:
        outcome = session.call("t_double", {"n": 21}, timeout=20)
        assert (outcome.kind, outcome.text) == (Kind.ok, "42")
        assert session.call("unknown").kind is Kind.refused
        assert session.id in session.resume_token
        assert repr(session).startswith(f"<Session {session.id} ")


@pytest.mark.slow
def test_arguments_that_are_no_json_raise_here(daemon: RunningDaemon) -> None:
    with session_of(daemon) as session:
        with pytest.raises(TypeError, match="the arguments of 't_double' are not JSON"):
            session.call("t_double", {"n": object()})
        with pytest.raises(ValueError, match="the arguments of 't_double' are not JSON"):
            session.call("t_double", {"n": math.nan})
        with pytest.raises(ValueError, match="start is -1"):
            session.read_output("o-1", start=-1)
        assert session.call("t_double", {"n": 1}).ok


@pytest.mark.slow
def test_events_are_handled_in_order_by_the_caller_before_the_call_returns(daemon: RunningDaemon) -> None:
    seen: list[tuple[Event, threading.Thread]] = []
    with session_of(daemon) as session:
        outcome = session.call(
            "t_counts", {"n": 300}, on_event=lambda event: seen.append((event, threading.current_thread()))
        )
        assert outcome.ok
        assert [event.text for event, _ in seen if isinstance(event, Log)] == [str(n) for n in range(300)]
        assert isinstance(seen[0][0], Started)
        assert {thread for _, thread in seen} == {threading.current_thread()}


@pytest.mark.slow
def test_events_that_wait_for_a_slow_caller_are_bounded_and_the_rest_is_counted(
    daemon: RunningDaemon,
) -> None:
    seen: list[Event] = []

    def handle(event: Event) -> None:
        if not seen:  # while the first is handled, the tool says the rest and ends
            assert session.call("t_double", {"n": 1}).ok  # no other call waits for that
            deadline = time.monotonic() + START_SECONDS_MAX
            while daemon.status().calls:
                assert time.monotonic() < deadline
        seen.append(event)

    with session_of(daemon) as session:
        assert session.call("t_counts", {"n": 5000}, on_event=handle).ok
    numbers = [int(event.text) for event in seen if isinstance(event, Log)]
    gaps = [event.count for event in seen if isinstance(event, Gap)]
    assert gaps, "nothing was lost, so nothing was bounded"
    assert numbers == sorted(numbers)
    assert len(numbers) + sum(gaps) == 5000


@pytest.mark.slow
def test_an_exception_in_on_event_aborts_the_call_and_is_raised_when_it_has_stopped(
    daemon: RunningDaemon, there: Path
) -> None:
    def handle(event: Event) -> None:
        if isinstance(event, Log):
            (there / "there").open().close()
            raise LookupError(event.text)  # noqa: TRY004  any exception will do

    with session_of(daemon) as session:
        with pytest.raises(LookupError, match="there"):
            session.call("t_waits", {"directory": str(there)}, on_event=handle)
        assert (there / "stopped").exists()
        assert session.call("t_double", {"n": 1}).ok


@pytest.mark.slow
def test_calls_of_several_threads_run_side_by_side(daemon: RunningDaemon) -> None:
    one, other = (str(daemon.directory / name) for name in ("one", "other"))
    for path in (one, other):
        os.mkfifo(path)
    with session_of(daemon) as session, ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(session.call, "t_meets", {"mine": mine, "theirs": theirs, "first": mine == one})
            for mine, theirs in ((one, other), (other, one))
        ]
        assert [call.result().text for call in calls] == ["met", "met"]


@pytest.mark.slow
def test_sessions_side_by_side_do_not_disturb_each_other(
    daemon: RunningDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    def use() -> list[str]:
        with session_of(daemon) as session:
            return [session.call("t_double", {"n": n}).text for n in range(50)]

    with ThreadPoolExecutor(4) as pool:
        for texts in [pool.submit(use) for _ in range(8)]:
            assert texts.result() == [str(2 * n) for n in range(50)]
    assert not caplog.records


@pytest.mark.slow
def test_a_question_is_put_to_the_thread_that_called(daemon: RunningDaemon) -> None:
    asked: list[tuple[str, str, threading.Thread]] = []

    def ask(ask: Ask) -> Answer:
        asked.append((ask.call.tool, ask.question, threading.current_thread()))
        if len(asked) == 2:
            raise RuntimeError("no terminal")
        return True

    with session_of(daemon, ask=ask) as session:
        assert session.call("t_asks").text == "yes"
        denied = session.call("t_asks")
        assert denied.kind is Kind.denied
        assert "RuntimeError: no terminal" in denied.message
    assert asked == [("t_asks", "May I?", threading.current_thread())] * 2
    with session_of(daemon) as session:
        assert session.call("t_asks").kind is Kind.denied


@pytest.mark.slow
def test_an_interrupted_question_aborts_the_call(daemon: RunningDaemon) -> None:
    def ask(_: Ask) -> Answer:
        raise KeyboardInterrupt

    with session_of(daemon, ask=ask) as session:
        with pytest.raises(KeyboardInterrupt):
            session.call("t_asks")
        assert session.call("t_double", {"n": 1}).ok


LATE = "from toolcell import tool\n\n@tool\ndef late() -> None: ...\n"


def test_the_catalog_is_reloaded(daemon: RunningDaemon) -> None:
    with session_of(daemon) as session:
        before = session.catalog
        daemon.tool("late", LATE)
        assert "late" in session.reload().tools
        assert "late" in session.catalog.tools
        assert "late" not in before.tools


@pytest.mark.slow
def test_a_changed_catalog_is_told_in_a_thread_that_is_not_the_callers(daemon: RunningDaemon) -> None:
    told: SimpleQueue[tuple[Catalog, threading.Thread]] = SimpleQueue()

    def follow(catalog: Catalog) -> None:
        told.put((catalog, threading.current_thread()))

    with session_of(daemon, on_catalog=follow) as session:
        daemon.tool("late", LATE)
        session.reload()
        found = False
        while not found:
            catalog, thread = told.get(timeout=START_SECONDS_MAX)
            found = "late" in catalog.tools
            assert thread.name == "toolcell session"
        assert "late" in session.catalog.tools


def test_an_output_that_was_cut_is_read_in_ranges(daemon: RunningDaemon) -> None:
    with session_of(daemon) as session:
        output = session.call("t_long").output
        assert output is not None
        assert session.read_output(output.id, start=7, length=6) == b"line 1"
        with pytest.raises(Refused):
            session.read_output("o-unknown")


@pytest.mark.slow
def test_a_session_is_taken_over_with_its_token(daemon: RunningDaemon) -> None:
    with session_of(daemon) as session, session_of(daemon, resume=session.resume_token) as again:
        assert again.id == session.id
        assert again.call("t_double", {"n": 1}).ok
        assert session.call("t_double", {"n": 1}).cause == "superseded"


def test_a_session_that_was_left_says_so(daemon: RunningDaemon) -> None:
    with session_of(daemon) as session:
        pass
    wishes: list[Callable[[], object]] = [
        lambda: session.call("t_double", {"n": 1}),
        session.reload,
        session.described,
        lambda: session.read_output("o-1"),
    ]
    for wish in wishes:
        with pytest.raises(RuntimeError, match="the session has been left"):
            wish()


@pytest.mark.slow
def test_leaving_aborts_what_other_threads_call(daemon: RunningDaemon, there: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        with session_of(daemon) as session:
            call = pool.submit(session.call, "t_waits", {"directory": str(there)})
            (there / "there").open().close()
        assert call.result().kind is Kind.aborted
        assert (there / "stopped").exists()


def test_beside_a_running_loop_it_points_to_the_other_face(daemon: RunningDaemon) -> None:
    async def use(wish: Callable[[], object]) -> None:
        with pytest.raises(RuntimeError, match=r"use toolcell\.client instead"):
            wish()

    asyncio.run(use(lambda: session_of(daemon).__enter__()))
    with session_of(daemon) as session:
        asyncio.run(use(lambda: session.call("t_double", {"n": 1})))
        asyncio.run(use(session.reload))


def test_without_a_daemon_connect_says_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(Unavailable, match="toolcell serve"),
        connect(str(tmp_path / "none" / "daemon.sock"), daemon="running"),
    ):
        pass
    with pytest.raises(ValueError, match="resume is not a resume token"), connect(resume="nonsense"):
        pass
    with pytest.raises(ValueError, match="is not UTF-8"), connect(directory=os.fsdecode(b"/\xff")):
        pass


@pytest.mark.slow
def test_ctrl_c_is_raised_when_the_tool_has_stopped(daemon: RunningDaemon, there: Path) -> None:
    source = """
        with blocking.connect(socket, daemon="running") as session:
            try:
                session.call("t_waits", there)
            except KeyboardInterrupt:
                say("stopped" if os.path.exists(directory + "/stopped") else "runs still")
            say(session.call("t_double", {"n": 21}).text)
    """
    with script(daemon, source) as process:
        (there / "there").open().close()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=START_SECONDS_MAX) == ("stopped\n42\n", "")
        assert process.returncode == 0


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_at_once(daemon: RunningDaemon, there: Path) -> None:
    source = """
        with blocking.connect(socket, daemon="running") as session:
            try:
                session.call("t_lingers", there)
            except KeyboardInterrupt:
                say("left")
        say("gone")
    """
    with script(daemon, source) as process:
        assert process.stdout is not None
        (there / "there").open().close()
        process.send_signal(signal.SIGINT)
        (there / "asked").open().close()  # the tool is to stop, and does not
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "left\n"
        (there / "free").open("w").close()
        assert process.communicate(timeout=START_SECONDS_MAX) == ("gone\n", "")
        assert process.returncode == 0


@pytest.mark.slow
def test_ctrl_c_while_the_session_is_left_does_not_wait_for_the_tool(
    daemon: RunningDaemon, there: Path
) -> None:
    source = """
        with blocking.connect(socket, daemon="running", linger=0) as session:
            other = threading.Thread(target=lambda: say(session.call("t_lingers", there).cause))
            other.start()
            open(directory + "/inside", "w").close()
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                pass
            say("leaving")
    """
    os.mkfifo(there / "inside")
    with script(daemon, source) as process:
        assert process.stdout is not None
        (there / "inside").open().close()
        (there / "there").open().close()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "leaving\n"
        (there / "asked").open().close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=START_SECONDS_MAX)
        assert out == "connection_lost\n"
        assert err.endswith("KeyboardInterrupt\n")
        (there / "free").open("w").close()


@pytest.mark.slow
def test_a_program_that_forgets_to_leave_ends_all_the_same(daemon: RunningDaemon) -> None:
    source = """
        connection = blocking.connect(socket, daemon="running", linger=0)
        session = connection.__enter__()
        say(session.call("t_double", {"n": 21}).text)
    """
    with script(daemon, source) as process:
        assert process.communicate(timeout=START_SECONDS_MAX) == ("42\n", "")
        assert process.returncode == 0
