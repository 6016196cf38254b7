"""Questions of a tool whose answer is a value."""

from typing import Any

import pytest

from toolcell import Abort, ToolError
from toolcell.testing import FakeContext

pytestmark = pytest.mark.anyio


def answering(value: object) -> FakeContext:
    def answer(**_: object) -> object:
        return {"value": value}

    return FakeContext(services={"ui.question": answer})


async def test_a_question_says_what_kind_of_answer_it_wants() -> None:
    context = answering(None)
    assert await context.ui.select("Which?", ["a", "b"]) is None
    assert await context.ui.input("Name?", "Ada") is None
    assert await context.ui.confirm("Sure?") is False
    assert [one.arguments for one in context.requested] == [
        {"kind": "select", "message": "Which?", "options": ["a", "b"]},
        {"kind": "input", "message": "Name?", "default": "Ada"},
        {"kind": "confirm", "message": "Sure?"},
    ]


async def test_the_answer_is_the_value() -> None:
    assert await answering("b").ui.select("Which?", ["a", "b"]) == "b"
    assert await answering("").ui.input("Name?") == ""
    assert await answering(True).ui.confirm("Sure?") is True
    assert await answering(False).ui.confirm("Sure?") is False


@pytest.mark.parametrize("value", ["c", 1, ["a"], {}])
async def test_an_answer_that_was_no_option_does_not_reach_the_tool(value: Any) -> None:
    with pytest.raises(ToolError, match="not one of the options"):
        await answering(value).ui.select("Which?", ["a", "b"])


@pytest.mark.parametrize("value", ["yes", 1, 0, [True]])
async def test_only_true_confirms(value: Any) -> None:
    with pytest.raises(ToolError, match="neither yes nor no"):
        await answering(value).ui.confirm("Sure?")


async def test_an_input_is_a_text() -> None:
    with pytest.raises(ToolError, match="not a text"):
        await answering(7).ui.input("Name?")


@pytest.mark.parametrize("options", [[], ["a", "a"], [str(number) for number in range(101)]])
async def test_options_are_few_and_different(options: list[str]) -> None:
    with pytest.raises(ToolError, match="1 to 100 different options"):
        await answering("a").ui.select("Which?", options)


async def test_an_agent_without_a_way_to_ask_is_an_error_with_the_reason() -> None:
    with pytest.raises(ToolError, match=r"ui\.question: test offers no service"):
        await FakeContext().ui.confirm("Sure?")
    with pytest.raises(ToolError, match="needs a message"):
        await answering(True).ui.confirm(" ")


async def test_a_note_goes_to_the_agent_or_else_to_the_log() -> None:
    shown: list[tuple[str, str]] = []

    def show(message: str, level: str) -> None:
        shown.append((message, level))

    context = FakeContext(services={"ui.notify": show})
    await context.ui.notify("Half done.", "warning")
    assert shown == [("Half done.", "warning")]
    assert context.logs == []

    without = FakeContext()
    await without.ui.notify("Half done.", "warning")
    assert [(one.level, one.text) for one in without.logs] == [("warning", "Half done.")]


async def test_a_tool_can_stop_its_agent_and_reads_why_not() -> None:
    def stop(reason: str) -> None:
        reasons.append(reason)

    reasons: list[str] = []
    context = FakeContext(services={"agent.abort": stop})
    await context.abort("x" * 2000)
    assert reasons == ["x" * 1000]
    assert not context.abort  # the flag is set by the agent's own abort
    with pytest.raises(ToolError, match=r"agent\.abort: test offers no service"):
        await FakeContext().abort()
    with pytest.raises(ToolError, match="no agent"):
        await Abort()()
