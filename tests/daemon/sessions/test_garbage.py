"""What an ended call leaves in the daemon: nothing that waits for the garbage collector, which a busy process rarely runs."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from tests.daemon.sessions.stage import STATES, Cell, Line, Stage, staged
from tests.garbage import garbage

from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.calls.outcomes.outcome import Kind, Stop

pytestmark = pytest.mark.anyio

OF_WORKERS = {"CellExit", "CellLimits", "CellSpec", "IdleRow", "ToolFile"}
"""Of one that has ended: a cell of this stage and its worker hold each other."""


async def run(stage: Stage, line: Line, tool: str, number: int, *, aborted: bool) -> None:
    """Have a call get to its state and end there: by an abort, or by answers and its worker's report."""
    line.send(call=pb.Call(call_id=f"c-{tool}-{number}", tool=tool, arguments=b"{}"))
    await stage.settle()
    (session,) = stage.sessions.all
    for call_id, call in list(session.calls.items()):
        if aborted:
            session.abort(call_id, Stop(Kind.ABORTED, "client", "by the operator"))
        for questions in call.questions:
            for ask_id in list(questions._open):  # pyright: ignore[reportPrivateUsage]
                line.send(answer=pb.Answer(call_id=call_id, ask_id=ask_id, allowed=number % 2 == 0))
                line.send(reply=pb.Reply(call_id=call_id, ask_id=ask_id, result=b"1"))
    await stage.settle()
    for worker in list(stage.pool.workers):
        if session.calls:
            cell: object = worker.cell
            assert isinstance(cell, Cell)
            cell.report()
            await stage.settle()
    for call_id in list(session.calls):
        session.abort(call_id, Stop(Kind.ABORTED, "client", "by the operator"))
        await stage.settle()
    for worker in list(stage.pool.workers):
        if session.calls:
            worker.cell.end()
            await stage.settle()
    assert not session.calls
    line.send(acknowledged=max(event.number for event in line.down))
    stage.calls.clear()


@pytest.mark.sampled("aborted")
@pytest.mark.slow
@pytest.mark.parametrize("aborted", [False, True], ids=["reported", "aborted"])
@pytest.mark.parametrize("tool", STATES)
async def test_an_ended_call_is_freed_at_once(tool: str, *, aborted: bool) -> None:
    async with staged() as stage:
        line = stage.attach(answers=True, services=True)
        await stage.settle()
        await run(stage, line, tool, 0, aborted=aborted)
        gc.collect()
        gc.disable()
        try:
            for number in range(1, 4):
                await run(stage, line, tool, number, aborted=aborted)
            found = garbage()
        finally:
            gc.enable()
        assert found.keys() <= OF_WORKERS


async def test_an_ended_session_is_freed_at_once() -> None:
    async with staged() as stage:
        line = stage.attach(answers=True, services=True)
        await stage.settle()
        (session,) = stage.sessions.all
        ended = weakref.ref(session)
        gc.collect()
        gc.disable()
        try:
            session.close(Stop(Kind.ABORTED, "operator", "closed"))
            await stage.settle()
            line.break_off()
            await asyncio.wait((line.rpc,))
            del session, line
            stage.lines.clear()
            stage.seen.clear()
            await stage.settle()
            assert ended() is None
        finally:
            gc.enable()
