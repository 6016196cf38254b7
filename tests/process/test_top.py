"""`toolcell top` on a real daemon, with its keys, and with names that would like to be more than names."""

from __future__ import annotations

import asyncio
import html
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as some
from rich.cells import cell_len
from tests.daemons import RunningDaemon, renewed, running_daemon
from textual.app import App
from textual.pilot import Pilot

from toolcell._printable import printable
from toolcell.cli.operation.top.rows import LISTS, figures, fit, laid_out, marks, rows_of, text_of
from toolcell.cli.operation.top.view import LiveView
from toolcell.client import Kind
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import operator_pb2_grpc as rpc
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

WAIT_SECONDS_MAX = 60.0
SIZES = [(80, 24), (120, 40)]
TOOLS = """
import os, time
from toolcell import tool

@tool
def works() -> None:
    print("x" * 999, flush=True)
    while True:
        time.sleep(0.01)

@tool
def adds(a: int, b: int) -> int:
    return a + b

@tool
def dies() -> None:
    os.abort()
"""
HOSTILE = (
    "[bold red on white]b[/] [@click=app.quit]q[/] \x1b[31m\x1b]0;t\x07\x9b2J\r\n\tz\u202e\u0301 "
    + "語W\u0300\u0301" * 3000
)
GLYPHS = re.compile(
    r'<text class="[^"]*" x="([\d.]+)" y="[\d.]+" textLength="[\d.]+" clip-path="url\(#\S+-line-(\d+)\)">([^<]*)</text>'
)


@pytest.fixture(scope="module")
def own_daemon() -> Generator[RunningDaemon]:
    """A daemon of this file alone: the view shows what all that use one have done."""
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def daemon(own_daemon: RunningDaemon) -> Generator[RunningDaemon]:
    """The same, for a test, with a new project."""
    with renewed(own_daemon):
        yield own_daemon


def screen(app: App[None]) -> list[str]:
    """The lines of the screen."""
    lines: dict[int, str] = {}
    for _, number, text in GLYPHS.findall(app.export_screenshot()):
        lines[int(number)] = lines.get(int(number), "") + html.unescape(text).replace("\xa0", " ").rstrip(
            "\n"
        )
    return [lines.get(number, "") for number in range(app.size.height)]


async def until(pilot: Pilot[None], *texts: str, without: str = "") -> list[str]:
    """Wait until the screen has each text, and return its lines."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        lines = screen(pilot.app)
        shown = "\n".join(lines)
        missing = [text for text in texts if text not in shown]
        if not missing and not (without and without in shown):
            return lines
        if time.monotonic() > deadline:
            pytest.fail(f"{missing} never came, or {without!r} stayed:\n{shown}")
        await asyncio.sleep(0.05)


def view(socket: str, **asked: Any) -> LiveView:
    request = op.GetActivityRequest(list="calls", sort="age")
    request.MergeFrom(op.GetActivityRequest(**asked))
    return LiveView(socket, request, 0.2)


@pytest.mark.slow
@pytest.mark.sampled(one_in=2, rest="slow")
@pytest.mark.parametrize("size", SIZES)
async def test_each_list_is_shown_and_a_call_is_looked_into_and_aborted(
    daemon: RunningDaemon, size: tuple[int, int]
) -> None:
    daemon.tool("t", TOOLS)
    async with daemon.connect(agent="tests") as session:
        assert (await session.call("t_adds", {"a": 1, "b": 2})).ok
        assert (await session.call("t_dies", {})).kind is Kind.crashed
        working = session.call("t_works", {}, call_id="c-works")
        async with view(daemon.socket).run_test(size=size) as pilot:
            await until(pilot, "c-works", "t_works", "running", "1000 B", "tests", " ok", " crashed", "1 run")
            await pilot.press("2")
            await until(pilot, "WORKER", "busy", "c-works")
            await pilot.press("enter")
            await until(pilot, "processes", "MiB", "call c-works")
            await pilot.press("escape", "3")
            await until(pilot, "SESSION", session.id[:10], "open")
            await pilot.press("4")
            await until(pilot, "P95", "t_adds", "t_dies", "crashed")
            await pilot.press("5")
            await until(pilot, "CAUSE", "SIGABRT")
            await pilot.press("enter")
            await until(pilot, "File", "in dies", "Esc back")
            await pilot.press("escape", "1")
            await until(pilot, "c-works")
            await pilot.press("enter")
            await until(pilot, "call c-works", "has it", "printed and logged", "xxxxx")
            await pilot.press("a")
            await until(pilot, "Abort call c-works of t_works?")
            await pilot.press(*"not now", "enter")
            await until(pilot, "It is being aborted.", "0 run")
        outcome = await working
    assert (outcome.kind, outcome.cause) == (Kind.aborted, "operator")
    assert "not now" in outcome.message
    async with daemon.operate() as operator:
        audit = await operator.ask(
            operator.operator.ListEvents, op.ListEventsRequest(type="decision.abort", limit=1)
        )
    assert [(event.type, event.call_id) for event in audit.events] == [("decision.abort", "c-works")]
    assert "not now" in audit.events[0].message


async def test_escape_leaves_a_question_and_nothing_is_done(daemon: RunningDaemon) -> None:
    daemon.tool("left", TOOLS)
    async with daemon.connect() as session:
        working = session.call("left_works", {}, call_id="c-left")
        async with view(daemon.socket, filter="left_").run_test(size=SIZES[0]) as pilot:
            await until(pilot, "left_works")
            for key, question in (
                ("a", "Abort call"),
                ("r", "Restart the workers"),
                ("d", "Disable left_works"),
            ):
                await pilot.press(key)
                await until(pilot, question)
                await pilot.press("escape")
                await until(pilot, "c-left", without=question)
        async with daemon.operate() as operator:
            audit = await operator.ask(
                operator.operator.ListEvents,
                op.ListEventsRequest(type="decision.", tool="left_works"),
            )
            assert list(audit.events) == []
        working.abort()
        assert (await working).cause == "client"


@pytest.mark.slow
async def test_a_tool_is_restarted_disabled_and_enabled_with_reasons_that_the_audit_has(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("steered", TOOLS)
    async with daemon.connect() as session:
        assert (await session.call("steered_adds", {"a": 1, "b": 2})).ok
        async with view(daemon.socket, list="tools", filter="steered").run_test(size=SIZES[0]) as pilot:
            await until(pilot, "steered_adds")
            await pilot.press("r")
            await until(pilot, "Restart the workers of steered_adds?")
            await pilot.press(*"old", "enter")
            await until(pilot, "1 workers retired")
            await pilot.press("d")
            await until(pilot, "Disable steered_adds")
            await pilot.press(*"bad", "enter")
            await until(pilot, "disabled: steered_adds")
            await pilot.press("d")
            await until(pilot, "Enable steered_adds again?")
            await pilot.press(*"good", "enter")
            await until(pilot, "steered_adds is enabled.", without="disabled: steered_adds")
    async with daemon.operate() as operator:
        audit = await operator.ask(
            operator.operator.ListEvents, op.ListEventsRequest(type="decision.", tool="steered_adds")
        )
    found = [(event.type, event.tool, event.message) for event in reversed(audit.events)]
    assert found == [
        ("decision.restart", "steered_adds", "1 workers: old"),
        ("decision.disable", "steered_adds", "bad"),
        ("decision.enable", "steered_adds", "good"),
    ]


@pytest.mark.slow
async def test_rows_are_sorted_filtered_and_held(daemon: RunningDaemon) -> None:
    daemon.tool("t", TOOLS)
    daemon.tool("u", TOOLS)
    async with daemon.connect() as session:
        calls = [session.call(f"{name}_works", {}, call_id=f"c-{name}") for name in ("u", "t")]
        async with view(daemon.socket).run_test(size=SIZES[0]) as pilot:
            places = [
                line[:3] for line in await until(pilot, "c-t", "c-u", "by age") if line.startswith("c-")
            ]
            assert places == ["c-u", "c-t"]
            await pilot.press("S")
            await until(pilot, "by name")
            await pilot.press("slash", *"u_wor", "enter")
            await until(pilot, "with u_wor", "c-u", without="c-t ")
            await pilot.press("escape")
            await until(pilot, "c-t", "c-u")
            await pilot.press("space")
            await until(pilot, "stands still")
            for call in calls:
                call.abort()
                await call
            await pilot.press("question_mark")
            await until(pilot, "abort the call, or all calls")
            await pilot.press("escape")
            await until(pilot, "c-t", "c-u")
            await pilot.press("space")
            await until(pilot, "0 run", without="c-t")


@pytest.mark.slow
async def test_the_view_says_that_the_daemon_is_away_and_comes_back_with_it(
    make_daemon: Callable[[], RunningDaemon],
) -> None:
    daemon = make_daemon()
    daemon.start()
    async with view(daemon.socket).run_test(size=SIZES[0]) as pilot:
        await until(pilot, f"process {daemon.pid}")
        assert await asyncio.to_thread(daemon.stop) == 0
        await until(pilot, "no answer since")
        await pilot.press("a", "4")
        await until(pilot, "no answer since", "by calls")
        await asyncio.to_thread(daemon.launch)
        await until(pilot, f"process {daemon.pid}", "TOOL", without="no answer since")
    assert await asyncio.to_thread(daemon.stop) == 0


async def test_a_thousand_calls_cost_no_more_rows_than_are_asked_for(daemon: RunningDaemon) -> None:
    daemon.tool("t", TOOLS)
    daemon.configure('\n[tool.t_works]\nqueue = "off"\n')
    async with daemon.connect() as one, daemon.connect() as other:
        calls = [session.call("t_works", {}) for session in (one, other) for _ in range(500)]
        while daemon.status().calls < len(calls):
            await asyncio.sleep(0.1)
        async with view(daemon.socket, limit=50).run_test(size=SIZES[0]) as pilot:
            lines = await until(pilot, "50 of 1000", "waiting")
            assert len(lines) == SIZES[0][1]
            async with daemon.operate() as operator:
                for limit, rows in ((1, 1), (0, 100), (2**32 - 1, 1000)):
                    request = op.GetActivityRequest(list="calls", limit=limit)
                    answer = await operator.ask(operator.operator.GetActivity, request)
                    assert (len(answer.calls), answer.found) == (rows, 1000)
            await pilot.press("3")
            await until(pilot, "SESSION", one.id[:10])
            await pilot.press("a")
            await until(pilot, f"Abort all calls of session {one.id}?")
            await pilot.press("enter")
            await until(pilot, "500 calls are being aborted.")
            async with daemon.operate() as operator:
                await operator.ask(operator.operator.AbortCalls, op.AbortCallsRequest(all=True))
        for call in calls:
            assert (await call).cause == "operator"


# Names that would like to be more than names


def hostile(request: op.GetActivityRequest) -> op.GetActivityResponse:
    """An answer in which every text is hostile, and every number as large as it can be."""
    moment, large = Timestamp(seconds=1), 2**32 - 1
    status = op.GetStatusResponse(
        state=HOSTILE, pid=large, started=moment, drained=HOSTILE, records_fault=HOSTILE
    )
    status.disabled.add(tool=HOSTILE)
    call = pb.CallInfo(
        call_id=HOSTILE, session_id=HOSTILE, tool=HOSTILE, state=HOSTILE, accepted=moment, worker_id=HOSTILE,
        agent=HOSTILE, agent_name=HOSTILE, directory=HOSTILE, path=HOSTILE,
    )  # fmt: skip
    worker = op.WorkerInfo(
        worker_id=HOSTILE, state=HOSTILE, path=HOSTILE, call_id=HOSTILE, session_id=HOSTILE, isolation=HOSTILE,
        directory=HOSTILE, calls=2**64 - 1,
        server=op.ServerUse(name=HOSTILE, running=large, places=large, sessions=large, starts=large),
    )  # fmt: skip
    usage = op.Usage(processors=1e300, memory_bytes=2**64 - 1, tasks=large, processor_seconds=1e300)
    answer = op.GetActivityResponse(
        status=status, outcomes={HOSTILE: large}, calls_by_state={HOSTILE: large}, window=moment, found=large
    )
    answer.calls.add(call=call, usage=usage, output_bytes=2**64 - 1)
    answer.workers.add(worker=worker, usage=usage, tool=HOSTILE)
    answer.sessions.add(
        session_id=HOSTILE, agent=HOSTILE, state=HOSTILE, directory=HOSTILE, retained_bytes=2**64 - 1
    )
    answer.tools.add(tool=HOSTILE, last=HOSTILE, calls=large, median_seconds=1e300)
    answer.died.add(
        tool=HOSTILE,
        call_id=HOSTILE,
        worker_id=HOSTILE,
        message=HOSTILE,
        details={HOSTILE: HOSTILE, "cause": HOSTILE},
    )
    return answer


class Stranger(rpc.OperatorServicer):
    """A daemon that says what nobody should."""

    async def GetActivity(self, request: op.GetActivityRequest, context: Any) -> op.GetActivityResponse:
        return hostile(request)

    async def GetCall(self, request: op.GetCallRequest, context: Any) -> op.GetCallResponse:
        answer = op.GetCallResponse(
            call=hostile(op.GetActivityRequest()).calls[0].call, arguments=HOSTILE, result=HOSTILE
        )
        answer.story.add(time=Timestamp(seconds=1), text=HOSTILE)
        return answer

    async def TailLogs(
        self, request: op.TailLogsRequest, context: Any
    ) -> AsyncGenerator[op.TailLogsResponse]:
        yield op.TailLogsResponse(lines=[op.LogLine(text=HOSTILE)])

    async def AbortCalls(self, request: op.AbortCallsRequest, context: Any) -> op.AbortCallsResponse:
        await context.abort(
            grpc.StatusCode.INTERNAL, "[bold red on white]b[/] [@click=app.quit]q[/] \x1b[31m" * 20
        )
        raise AssertionError


@asynccontextmanager
async def strange_daemon(directory: Path) -> AsyncGenerator[str]:
    """The socket of a `Stranger`."""
    socket = str(directory / "daemon.sock")
    for name in ("agent.token", "operator.token"):
        (directory / name).write_text("token")
        os.chmod(directory / name, 0o600)
    server = grpc.aio.server()
    rpc.add_OperatorServicer_to_server(Stranger(), server)  # type: ignore[abstract]  # the rest is not asked for
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield socket
    finally:
        await server.stop(None)


@pytest.mark.slow
@pytest.mark.sampled(one_in=2, rest="slow")
@pytest.mark.parametrize("size", SIZES)
async def test_a_hostile_text_neither_runs_nor_breaks_the_layout(
    make_daemon: Any, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with strange_daemon(tmp_path) as socket, view(socket).run_test(size=size) as pilot:
        for key, name in zip("12345", LISTS, strict=True):
            await pilot.press(key)
            lines = await until(pilot, LISTS[name].columns[0].name, "[bold red", "note")
            assert max(map(cell_len, lines)) <= size[0]
            assert not any(ord(letter) < 32 or letter == "\u202e" for line in lines for letter in line)
            assert lines[5 if "note" in lines[4] else 4].startswith("1 Calls  2 Workers")
            assert lines[-1].startswith("Enter look")
            if name in ("sessions", "tools"):
                continue
            await pilot.press("enter")
            lines = await until(pilot, "Esc back", "[bold red")
            assert max(map(cell_len, lines)) <= size[0]
            assert "\x1b" not in "".join(lines)
            await pilot.press("escape")
        await until(pilot, "by age")
        await pilot.press("4", "a")
        await until(pilot, "Abort", "[bold red", "Esc leaves it.")
        await pilot.press("enter")
        await until(pilot, "1 Calls")
        assert pilot.app.is_running


@given(some.text(max_size=300), some.integers(1, 60), some.booleans())
def test_a_text_that_was_fitted_takes_as_many_cells_as_there_are(text: str, cells: int, right: bool) -> None:
    found = fit(text, cells, right=right)
    assert cell_len(found) == cells
    assert found == printable(found, lines=False)


@pytest.mark.parametrize("name", LISTS)
def test_every_row_has_a_text_for_each_column_and_every_width_is_used(name: str) -> None:
    answer = hostile(op.GetActivityRequest())
    (row,) = rows_of(name, answer)
    assert len(row.texts) == len(LISTS[name].columns)
    narrow = [column for column in LISTS[name].columns if column.cells]
    assert sum(laid_out(narrow, 79)) + len(narrow) - 1 == 79
    assert sum(laid_out(LISTS[name].columns, 119)) + len(LISTS[name].columns) - 1 == 119
    assert "\x1b" not in text_of(row.about)
    assert [label for label, _ in figures(answer, 1.0)] == ["daemon", "host", "calls", "ended", "note"]


def test_rates_are_drawn_as_a_curve() -> None:
    assert marks([]) == ""
    assert marks([0.0, 0.0]) == "  "
    assert marks([0.0, 1.0, 2.0]) == " ▄█"
