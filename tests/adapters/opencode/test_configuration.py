"""What the plugin makes of OpenCode's own configuration: its rules for permissions, and what it cuts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.adapters.conftest import LATE
from tests.adapters.openai import offered
from tests.adapters.opencode.serve import OpenCode, until
from tests.adapters.script import Use
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import plugin_entry

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

BARE = """
    from toolcell import ToolContext, tool

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
    """


@pytest.fixture(scope="module")
def config(kit: RunningDaemon) -> dict[str, Any]:
    """The plugin, tools that ask in few words, a user who trusts one of them c.py that no user trusts, and short results."""
    kit.tool("bare", BARE)
    kit.tool("late", LATE)
    return {
        "tool_output": {"max_lines": 100, "max_bytes": 5_000},
        "plugin": [plugin_entry(socket=kit.socket, start=False)],
        "permission": {"write": {"*": "allow", "c.py": "deny"}, "bare_trus*": "allow"},
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
    assert (question["permission"], question["patterns"]) == ("bare", ["*"])
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
