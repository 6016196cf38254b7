"""Questions for a value, as they come from a tool's process."""

from typing import Any, cast

import pytest

from toolcell.client import Call, Question, question_service
from toolcell.client.notes import note_of

pytestmark = pytest.mark.anyio

CALL = cast("Call", None)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (
            {"kind": "select", "message": "Which?", "options": ["a", "b"]},
            {"type": "string", "title": "Answer", "enum": ["a", "b"]},
        ),
        (
            {"kind": "input", "message": "Name?", "default": "Ada"},
            {"type": "string", "title": "Answer", "default": "Ada"},
        ),
        ({"kind": "confirm", "message": "Sure?"}, {"type": "boolean", "title": "Answer", "default": True}),
    ],
)
def test_each_question_has_a_schema(arguments: dict[str, Any], value: dict[str, Any]) -> None:
    schema = Question.read(CALL, arguments).schema
    assert schema == {"type": "object", "properties": {"value": value}, "required": ["value"]}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"kind": "password", "message": "Which?"},
        {"kind": ["select"], "message": "Which?"},
        {"kind": "input"},
        {"kind": "input", "message": " "},
        {"kind": "input", "message": {"html": "x"}},
        {"kind": "input", "message": "Name?", "default": 1},
        {"kind": "input", "message": "Name?", "options": ["a"]},
        {"kind": "select", "message": "Which?"},
        {"kind": "select", "message": "Which?", "options": "ab"},
        {"kind": "select", "message": "Which?", "options": ["a", 1]},
        {"kind": "select", "message": "Which?", "options": ["a"] * 101},
    ],
)
async def test_what_is_no_question_never_reaches_the_application(arguments: dict[str, Any]) -> None:
    seen: list[Question] = []

    async def dialog(question: Question) -> object:
        seen.append(question)
        return "a"

    with pytest.raises(ValueError, match=r"should|needs|have"):
        await question_service(dialog)(CALL, **arguments)
    assert seen == []


@pytest.mark.parametrize(
    "arguments", [{}, {"message": 1, "level": "info"}, {"message": "m", "level": "debug"}]
)
def test_a_note_is_a_text_and_a_level(arguments: dict[str, Any]) -> None:
    assert note_of({"message": "m", "level": "error"}) == ("m", "error")
    with pytest.raises(ValueError, match="a note has"):
        note_of(arguments)
