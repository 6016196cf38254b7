"""OpenCode calls tools of every kind, aborts them, and reads their outputs cut."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.kinds import CONTEXTS, CUT, KINDS, LINES, STEP, aborted, assert_told
from tests.adapters.openai import Model
from tests.adapters.opencode.serve import OpenCode, serving
from tests.adapters.script import Use
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import plugin_entry

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def opencode(kinds: RunningDaemon, model: Model) -> Iterator[OpenCode]:
    """OpenCode in the project with tools of every kind."""
    config: dict[str, Any] = {"plugin": [plugin_entry(socket=kinds.socket, start=False)]}
    with (
        tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as home,
        serving(Path(home), kinds.project, model, **config) as opencode,
    ):
        yield opencode


async def test_tools_of_every_kind_are_called_cut_and_aborted(
    kinds: RunningDaemon, opencode: OpenCode
) -> None:
    async with opencode.stay() as stay:
        said = await stay.use(*(Use(kind.say, {"text": f"ü {kind.name}"}) for kind in KINDS))
        assert said == [f"ü {kind.name}" for kind in KINDS]
        for long in await stay.use(*(Use(kind.lines, {"count": LINES}) for kind in KINDS)):
            assert CUT in long
        steps = Use("served_steps")
        assert await stay.use(steps) == ["stepped"]
        told = (await stay.part(steps))["state"]["metadata"]["progress"]
        assert told == {"done": 2, "total": 3, "message": STEP}
    for kind in KINDS:
        async with opencode.stay() as stay:
            stay.opencode.model.script.uses(Use(kind.wait))
            async with asyncio.TaskGroup() as turns:
                turn = turns.create_task

                async def begin(stay: Any = stay, turn: Any = turn) -> None:
                    turn(stay.turn())

                await aborted(kinds, kind.wait, begin, stay.abort)


async def test_tools_in_typescript_are_told_the_same_of_their_call_as_those_in_python(
    kinds: RunningDaemon, opencode: OpenCode
) -> None:
    async with opencode.stay() as stay:
        assert_told(kinds, await stay.use(*map(Use, CONTEXTS)), agent="build")


@pytest.mark.parametrize(("reply", "said"), [("once", "accept True"), ("reject", "accept False")])
async def test_a_form_of_a_server_that_asks_for_yes_or_no_is_answered(
    opencode: OpenCode, reply: str, said: str
) -> None:
    use = Use("served_confirms")
    async with opencode.stay() as stay:
        async with stay.using(use):
            question = await stay.question()
            assert question["metadata"]["question"] == "Really? Agreed"
            assert question["always"] == []
            await stay.reply(question, reply)
        assert stay.shown(use) == [said]


async def test_a_form_that_asks_for_another_value_is_refused_with_the_reason(opencode: OpenCode) -> None:
    async with opencode.stay() as stay:
        (said,) = await stay.use(Use("served_asks"))
    assert "yes or no, and not for another value" in said
