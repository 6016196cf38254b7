"""Claude Code calls tools of every kind, aborts them, and reads their outputs cut."""

from __future__ import annotations

import asyncio

import pytest
from tests.adapters.claude.conftest import Start
from tests.adapters.claude.test_claude import result, texts, use
from tests.adapters.kinds import CONTEXTS, CUT, KINDS, LINES, NAME, STEP, WHO, aborted, assert_told
from tests.adapters.script import Turn
from tests.daemons import RunningDaemon

from toolcell.adapters.base import Origin
from toolcell.client import Event, Progress, Question

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]


async def test_tools_of_every_kind_are_called_cut_and_aborted(kinds: RunningDaemon, start: Start) -> None:
    heard: list[Event] = []

    async def on_event(_: Origin, event: Event) -> None:
        heard.append(event)

    async def dialog(question: Question) -> object:
        return NAME if question.message == WHO else None

    async with start(kinds, on_event=on_event, question=dialog) as claude:
        assert texts(await result(claude, use("served_steps"))) == ["stepped"]
        assert Progress(2, 3, STEP) in heard
        assert texts(await result(claude, use("served_asks"))) == [f"accept {NAME}"]
        for kind in KINDS:
            assert texts(await result(claude, use(kind.say, text=f"ü {kind.name}"))) == [f"ü {kind.name}"]
            long = texts(await result(claude, use(kind.lines, count=LINES)))
            assert CUT in "".join(long), kind
            turns: list[asyncio.Task[object]] = []

            async def begin(tool: str = kind.wait, turns: list[asyncio.Task[object]] = turns) -> None:
                claude.model.script.turns.append(Turn(uses=(use(tool),)))
                await claude.client.query("go")
                turns.append(asyncio.create_task(claude.answer()))

            await aborted(kinds, kind.wait, begin, claude.client.interrupt)
            await turns[0]


async def test_tools_in_typescript_are_told_the_same_of_their_call_as_those_in_python(
    kinds: RunningDaemon, start: Start
) -> None:
    async with start(kinds) as claude:
        results = ["".join(texts(await result(claude, use(tool)))) for tool in CONTEXTS]
        assert_told(kinds, results, agent="main")
