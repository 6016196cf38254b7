"""What the plugin makes of OpenCode's own configuration: its rules for permissions, and what it cuts."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.adapters.conftest import IMPATIENT, LATE
from tests.adapters.openai import offered
from tests.adapters.opencode.serve import OpenCode, Stay, until
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import plugin_entry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

BARE = """
    import asyncio
    import os
    from pathlib import Path

    from toolcell import Denied, ToolContext, tool

    @tool
    async def heeds(context: ToolContext) -> str:
        try:
            await context.ask("Really?")
        except Denied as denied:
            return f"heard: {denied}"
        return "really"

    @tool
    async def bare(context: ToolContext) -> str:
        await context.ask("Really?")
        return "really"

    @tool
    def titled(context: ToolContext) -> str:
        context.metadata("Three rows", rows=2)
        context.metadata(rows=3)
        return "titled"

    @tool
    async def twice(context: ToolContext) -> str:
        await context.ask("Really?")
        await context.ask("Is it?", patterns=["really"])
        return "twice"

    @tool
    async def trusted(context: ToolContext) -> str:
        await context.ask("Really?")
        return "trusted"

    @tool
    def gated(context: ToolContext) -> str:
        Path(context.directory, "gated").touch()
        return "gated"

    @tool(destructive=True)
    def wipes() -> str:
        return "wiped"

    @tool(destructive=True)
    def sweeps() -> str:
        return "swept"

    @tool
    async def dies(context: ToolContext) -> str:
        asyncio.get_running_loop().call_later(1, os._exit, 3)
        await context.ask("Really?")
        return "never"

    @tool
    async def writes(path: str, context: ToolContext) -> str:
        await context.ask(f"Write {path}?", patterns=[path], always=["src/*"])
        return f"wrote {path}"
    """


@pytest.fixture(scope="module")
def config(kit: RunningDaemon) -> dict[str, Any]:
    """The plugin, tools that ask, a user who has rules for some of them, and short results."""
    kit.tool("bare", BARE)
    kit.tool("late", LATE)
    kit.configure(IMPATIENT)
    return {
        "tool_output": {"max_lines": 100, "max_bytes": 5_000},
        "plugin": [plugin_entry(socket=kit.socket, start=False)],
        "permission": {
            "write": {"*": "allow", "c.py": "deny"},
            "bare_trus*": "allow",
            "bare_gated": "ask",
            "bare_sweeps": "allow",
        },
    }


async def test_a_file_that_takes_long_to_describe_is_offered_from_the_first(opencode: OpenCode) -> None:
    async with opencode.stay() as stay:
        await stay.use(Use("bare_titled"))
        assert "late" in offered(opencode.model.script.requests[0])


async def test_a_question_without_patterns_is_put_all_the_same(opencode: OpenCode) -> None:
    use = Use("bare")
    async with opencode.stay() as stay:
        async with stay.using(use):
            question = await stay.question()
            await stay.reply(question, "once")
        assert stay.shown(use) == ["really"]
    assert (question["permission"], question["patterns"]) == ("bare: Really?", ["*"])
    assert question["metadata"]["question"] == "Really?"


async def test_a_tool_may_ask_more_than_once(opencode: OpenCode) -> None:
    use = Use("bare_twice")
    async with opencode.stay() as stay:
        async with stay.using(use):
            first = await stay.question()
            await stay.reply(first, "once")

            async def next_one() -> bool:
                return bool((await stay.question())["id"] != first["id"])

            await until(next_one)
            second = await stay.question()
            await stay.reply(second, "once")
        assert stay.shown(use) == ["twice"]
    assert (second["metadata"]["question"], second["patterns"]) == ("Is it?", ["really"])


async def test_what_a_user_says_with_a_rejection_reaches_the_tool_and_else_the_model(
    opencode: OpenCode,
) -> None:
    async with opencode.stay() as stay:
        async with stay.using(caught := Use("bare_heeds")):
            await stay.reply(await stay.question(), "reject", message="not on a Friday")
        assert "not on a Friday" in stay.shown(caught)[0]
        async with stay.using(left := Use("bare")):
            await stay.reply(await stay.question(), "reject", message="ask Ada")
        assert "ask Ada" in stay.shown(left)[0]


async def test_two_sessions_at_once_do_not_stop_each_others_tools(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    async with opencode.stay() as one, opencode.stay() as two, asyncio.TaskGroup() as group:
        for stay, mark in ((one, "first"), (two, "second")):
            opencode.model.script.turns = [Turn(uses=(Use("kit_waits", {"name": mark}),))]
            group.create_task(stay.turn())
            await until((kit.project / f"{mark}.there").exists)
        await one.abort()
        await until((kit.project / "first.stopped").exists)
        assert not (kit.project / "second.stopped").exists()
        await two.abort()
        await until((kit.project / "second.stopped").exists)


async def test_a_rule_for_the_tool_answers_its_questions(opencode: OpenCode) -> None:
    async with opencode.stay() as stay:
        assert await stay.use(Use("bare_trusted")) == ["trusted"]


async def test_a_rule_for_the_permission_that_the_tool_names_answers_its_questions(
    opencode: OpenCode,
) -> None:
    async with opencode.stay() as stay:
        assert await stay.use(Use("kit_asks", {"path": "a.py"})) == ["wrote a.py"]
        denied = Use("kit_asks", {"path": "c.py"})
        await stay.use(denied)
        state = (await stay.part(denied))["state"]
    assert state["status"] == "error"
    assert "a rule" in state["error"]


async def test_a_rule_that_asks_about_a_tool_is_answered_before_it_runs(
    kit: RunningDaemon, opencode: OpenCode
) -> None:
    use = Use("bare_gated")
    async with opencode.stay() as stay:
        async with stay.using(use):
            question = await stay.question()
            await stay.reply(question, "reject")
        state = (await stay.part(use))["state"]
        assert (state["status"], len(opencode.model.script.requests)) == ("error", 1)
        assert not (kit.project / "gated").exists()
    async with opencode.stay() as stay:
        async with stay.using(use := Use("bare_gated")):
            await stay.reply(await stay.question(), "once")
        assert stay.shown(use) == ["gated"]
    assert (question["permission"], question["patterns"], question["always"]) == ("bare_gated", ["*"], ["*"])


async def test_a_destructive_tool_asks_unless_a_rule_allows_it(opencode: OpenCode) -> None:
    async with opencode.stay() as stay:
        assert await stay.use(Use("bare_sweeps")) == ["swept"]
        async with stay.using(use := Use("bare_wipes")):
            question = await stay.question()
            await stay.reply(question, "always")
        assert stay.shown(use) == ["wiped"]
        assert await stay.use(Use("bare_wipes")) == ["wiped"]
    assert question["permission"] == "bare_wipes"


async def test_always_holds_for_questions_in_other_words(opencode: OpenCode) -> None:
    async with opencode.stay() as stay:
        async with stay.using(Use("bare_writes", {"path": "src/a.py"})):
            await stay.reply(await stay.question(), "always")
        assert await stay.use(Use("bare_writes", {"path": "src/b.py"})) == ["wrote src/b.py"]
        async with stay.using(other := Use("bare_writes", {"path": "lib/b.py"})):
            question = await stay.question()
            await stay.reply(question, "once")
        assert stay.shown(other) == ["wrote lib/b.py"]
    assert question["permission"] == "bare_writes: Write lib/b.py?"


@pytest.mark.parametrize("tool", ["bare", "bare_gated"])
async def test_a_question_goes_with_the_turn_that_is_aborted(opencode: OpenCode, tool: str) -> None:
    async with opencode.stay() as stay:
        async with stay.using(Use(tool)):
            await stay.question()
            await stay.abort()

        await none_is_open(stay)


async def test_a_question_goes_with_the_tool_that_dies(opencode: OpenCode) -> None:
    async with opencode.stay() as stay:
        async with stay.using(use := Use("bare_dies")):
            await stay.question()
            await none_is_open(stay)
        assert "crashed" in stay.shown(use)[0]


async def none_is_open(stay: Stay) -> None:
    """Wait until the user is asked nothing."""

    async def withdrawn() -> bool:
        return not (await stay.client.get("/permission")).raise_for_status().json()

    await until(withdrawn)


async def test_what_opencode_is_told_to_cut_is_cut_a_little_earlier(opencode: OpenCode) -> None:
    uses = [Use("kit_long", {"lines": 100}), Use("kit_echo", {"text": "x\n" * 300})]
    async with opencode.stay() as stay:
        said = await stay.use(*uses)
        ids = [re.findall(r'toolcell_read_output\(output_id="([^"]+)"', text) for text in said]
        uses += [Use("toolcell_read_output", {"output_id": found[0], "start": 4}) for found in ids]
        await stay.use(*uses[2:])
        states = [(await stay.part(use))["state"] for use in uses]
    assert [state["metadata"]["truncated"] for state in states] == [False] * 4
    assert all(len(state["output"].splitlines()) > 80 or len(state["output"]) > 3_500 for state in states)


async def test_what_a_tool_says_beside_its_result_is_kept(opencode: OpenCode) -> None:
    use = Use("bare_titled")
    async with opencode.stay() as stay:
        assert await stay.use(use) == ["titled"]
        state = (await stay.part(use))["state"]
    assert (state["title"], state["metadata"]["rows"]) == ("Three rows", 3)
