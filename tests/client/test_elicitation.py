"""Forms of MCP, filled by one question after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from toolcell import ToolError
from toolcell.client import Call, Question, question_service
from toolcell.client._elicitation import FIELDS_MAX, INPUT, REQUESTS_MAX, SKIP, fill, with_forms
from toolcell.client.callbacks import Service, encode_result

pytestmark = pytest.mark.anyio

CALL = cast("Call", None)
TITLED = [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]


def form(message: str = "A table?", required: Sequence[str] = (), /, **fields: object) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def filled(request: object, *answers: object) -> tuple[list[Question], Any]:
    """Return the questions, and the result of a form that is answered by `answers`, in this order."""
    filling, questions, given = fill(CALL, {"it": request}), list[Question](), iter(answers)
    try:
        question = next(filling)
        while True:
            questions.append(question)
            question = filling.send(next(given))
    except StopIteration as end:
        return questions, end.value["it"]


@pytest.mark.parametrize(
    ("field", "answer", "kind", "value"),
    [
        ({"type": "string"}, "Ada", "input", "Ada"),
        ({"type": "string"}, "", "input", ""),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "Ada", "input", "Ada"),
        ({"type": "string", "format": "email"}, "a@b", "input", "a@b"),
        ({"type": "integer"}, "-3", "input", -3),
        ({"type": "integer"}, "9" * 400, "input", int("9" * 400)),
        ({"type": "number"}, "1.5", "input", 1.5),
        ({"type": "number", "minimum": 1, "maximum": 2}, "2", "input", 2.0),
        ({"type": "boolean"}, True, "confirm", True),
        ({"type": "boolean"}, False, "confirm", False),
        ({"type": "string", "enum": ["a", "b"]}, "b", "select", "b"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]}, "Second", "select", "b"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["Same", "Same"]}, "b", "select", "b"),
        ({"type": "string", "oneOf": TITLED}, "First", "select", "a"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "a, b", "input", ["a", "b"]),
        ({"type": "array", "items": {"anyOf": TITLED}}, "Second", "input", ["b"]),
    ],
)
def test_a_field_is_a_question_and_its_answer_a_value(
    field: dict[str, Any], answer: object, kind: str, value: object
) -> None:
    (question,), result = filled(form("A table?", ["x"], x=field), answer)
    assert question.kind == kind
    assert question.message.startswith("A table? x")
    assert result == {"action": "accept", "content": {"x": value}}


@pytest.mark.parametrize(
    ("field", "answer"),
    [({"type": "string"}, " "), ({"type": "number"}, ""), ({"type": "string", "enum": ["a"]}, SKIP)],
)
def test_a_field_that_need_not_be_filled_is_left_out(field: dict[str, Any], answer: object) -> None:
    assert filled(form(x=field), answer)[1] == {"action": "accept", "content": {}}


@pytest.mark.parametrize(
    ("field", "wrong", "said", "right", "value"),
    [
        ({"type": "integer"}, "two", "a whole number is wanted", "2", 2),
        ({"type": "integer"}, "9" * 5000, "a whole number is wanted", "2", 2),
        ({"type": "number"}, "nan", "a number is wanted", "2", 2.0),
        ({"type": "integer", "minimum": 1, "maximum": 8}, "9", "at least 1 and at most 8", "8", 8),
        ({"type": "string", "maxLength": 3}, "Adam", "at most 3 characters", "Ada", "Ada"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "c", "one of these is wanted: a, b", "b", ["b"]),
    ],
)
def test_what_does_not_fit_is_asked_for_again(
    field: dict[str, Any], wrong: object, said: str, right: object, value: object
) -> None:
    questions, result = filled(form("A table?", ["x"], x=field), wrong, right)
    assert said in questions[1].message
    assert result["content"] == {"x": value}
    assert filled(form("A table?", ["x"], x=field), *[wrong] * 3)[1] == {"action": "cancel"}


def test_a_question_says_what_the_form_does() -> None:
    size = {"type": "integer", "title": "Guests", "description": "with children", "default": 2}
    questions, result = filled(
        form("Book:", ["size"], size=size, at={"type": "string", "format": "date"}), "3", ""
    )
    assert [question.message for question in questions] == [
        "Book: Guests: with children",
        "Book: at (date, optional)",
    ]
    assert questions[0].default == "2"
    assert result == {"action": "accept", "content": {"size": 3}}


def test_a_form_without_fields_is_agreed_to() -> None:
    for answer, action in ((True, "accept"), (False, "decline"), (None, "cancel")):
        (question,), result = filled(form("Delete it?"), answer)
        assert (question.kind, question.message, result["action"]) == ("confirm", "Delete it?", action)


def test_a_form_that_is_dismissed_is_cancelled() -> None:
    assert filled(form(a={"type": "string"}, b={"type": "string"}), "x", None)[1] == {"action": "cancel"}


@pytest.mark.parametrize(
    "requests",
    [
        {},
        {f"r{number}": form() for number in range(REQUESTS_MAX + 1)},
        {"it": form(**{f"f{number}": {"type": "string"} for number in range(FIELDS_MAX + 1)})},
        {f"r{each}": form(**{f"f{number}": {"type": "string"} for number in range(20)}) for each in range(2)},
        {"it": None},
        {"it": {"method": "elicitation/create"}},
        {"it": {"method": "roots/list"}},
        {"it": {"method": "sampling/createMessage", "params": {"messages": []}}},
        {
            "it": {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "m", "url": "https://e.org"},
            }
        },
        {
            "it": {
                "method": "elicitation/create",
                "params": {"message": 1, "requestedSchema": {"properties": {}}},
            }
        },
        {
            "it": {
                "method": "elicitation/create",
                "params": {"message": "m", "requestedSchema": {"properties": []}},
            }
        },
        {"it": form(x={"type": "object"})},
        {"it": form(x={"type": "array", "items": {"type": "string"}})},
        {"it": form(x={"type": ["string"]})},
        {"it": form(x="string")},
        {"it": form(x={"type": "string", "enum": []})},
        {"it": form(x={"type": "string", "enum": ["a", 1]})},
        {"it": form(x={"type": "string", "enum": [""]})},
        {"it": form(x={"type": "string", "enum": [str(number) for number in range(100)]})},
        {"it": form(x={"type": "string", "oneOf": [{"const": {}}]})},
    ],
)
async def test_what_is_no_form_never_reaches_the_application(requests: dict[str, Any]) -> None:
    seen: list[Question] = []

    async def dialog(question: Question) -> object:
        seen.append(question)
        return "a"

    served = with_forms({"ui.question": question_service(dialog)})
    with pytest.raises(ToolError):
        await served[INPUT](CALL, **requests)
    assert seen == []


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "title": 1, "description": [], "default": {}, "format": 2, "minLength": "x"},
        {"type": "integer", "minimum": True, "maximum": 10**400},
        {"type": "string", "title": "\x1b[2J", "description": "x" * 2**20},
        {"type": "string", "enum": ["a"], "enumNames": [1, 2]},
    ],
)
def test_an_odd_schema_is_a_question_of_a_bounded_size(field: dict[str, Any]) -> None:
    (question,), result = filled(
        form("m" * 2**20, ["x"], x=field), "1" if field["type"] == "integer" else "a"
    )
    assert result["action"] == "accept"
    assert len(question.message) < 2**14


async def test_an_application_that_answers_questions_fills_forms() -> None:
    async def dialog(question: Question) -> object:
        return {"input": "3", "confirm": True, "select": "b"}[question.kind]

    served = with_forms({"ui.question": question_service(dialog)})
    one = form(size={"type": "integer"}, which={"type": "string", "enum": ["a", "b"]})
    said = await served[INPUT](CALL, call=one, sure=form("Sure?"))
    assert said == {
        "call": {"action": "accept", "content": {"size": 3, "which": "b"}},
        "sure": {"action": "accept", "content": {}},
    }
    assert encode_result(said)


def test_an_application_without_questions_or_with_forms_of_its_own_is_left_alone() -> None:
    async def own(call: Call, /, **arguments: object) -> object:
        return arguments

    none: Mapping[str, Service] = {"other": own}
    both = {"ui.question": own, INPUT: own}
    assert with_forms(none) is none
    assert with_forms(both) is both
    assert with_forms(None) == {}
