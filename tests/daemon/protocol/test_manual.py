"""The manual of the worker protocol agrees with the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import pytest

from toolcell._results.normalise import BLOCKS_MAX
from toolcelld.calls import questions
from toolcelld.output import result
from toolcelld.protocol import frames, messages
from toolcelld.protocol.messages import BrokenMessage, CallContext, FromWorker, ResultMessage, ToWorker
from toolcelld.sandbox import setup

MANUAL: Final = (Path(__file__).parents[3] / "docs/worker-protocol.md").read_text(encoding="utf-8")

BOUNDS: Final = {
    "A header": frames.HEADER_BYTES_MAX,
    "A payload in one frame": frames.PAYLOAD_BYTES_MAX,
    "A message to the worker, chunks joined": messages.MESSAGE_BYTES_MAX,
    "A description, chunks joined": messages.DESCRIPTION_BYTES_MAX,
    "One part of a result": messages.PART_BYTES_MAX,
    "Blocks of a result": BLOCKS_MAX,
    "Details of a result that go along; longer ones are kept beside": result.DETAILS_BYTES_MAX,
    "Metadata of a call": messages.METADATA_BYTES_MAX,
    "A question with its patterns and details, a request with its arguments, a reply": questions.QUESTION_BYTES_MAX,
    "Open questions and requests of a call": questions.OPEN_MAX,
    "Records of one `log`": messages.RECORDS_MAX,
}
BOUNDS_OF_FIELDS: Final = {
    "`pid`, `line`, `ask`": messages.NUMBER_MAX,
    "`seq`": messages.SEQUENCE_MAX,
    "`cpu`, `rss`, `done`, `total`": messages.FIGURE_MAX,
    "`threads`": messages.THREADS_MAX,
    "`lost`": messages.LOST_MAX,
    "`layers`": messages.LAYERS_MAX,
    "Texts: a layer, `python`, `mime_type`": messages.WORD_CHARACTERS_MAX,
    "`module`": messages.MODULE_CHARACTERS_MAX,
    "`message` of all but `broken`, `title`, `name`": messages.LINE_CHARACTERS_MAX,
    "`message` of `broken`, `uri`": messages.CAUSE_CHARACTERS_MAX,
}
WORDS: Final[dict[Any, str]] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
    tuple: "texts",
    Mapping: "numbers by text",
    CallContext: "object",
}
"""The manual's name of each type."""


def table(title: str, first: str) -> list[list[str]]:
    """The rows below a heading of the table whose first column is called so."""
    below = re.split(r"^#+ ", MANUAL.split(f"# {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = iter(below.splitlines())
    found = [line for line in lines if line.startswith(f"| {first} |")]
    assert len(found) == 1, f"one table with {first}"
    rows = below.split(found[0])[1].splitlines()[2:]
    body = rows[: rows.index("") if "" in rows else None]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in body]


def typed(kind: Any) -> dict[str, str]:
    """The fields of a message as the types have them, in the words of the manual."""
    found: dict[str, str] = {}
    for field in fields(kind):
        hint = get_type_hints(kind)[field.name]
        choices = [choice for choice in get_args(hint) if choice is not type(None)]
        hint = choices[0] if type(None) in get_args(hint) else hint
        word = WORDS.get(get_origin(hint) or hint, "text")  # a Literal is one, too
        found[field.name] = word if field.default is MISSING else f"{word}, may be absent"
    return {name: word for name, word in found.items() if name not in ("type", "size")}


def stated(cell: str) -> dict[str, str]:
    """The fields of a message as a cell of the manual has them."""
    found: dict[str, str] = {}
    for group in filter(None, cell.split("; ")):
        names, word = group.split(": ")
        found |= dict.fromkeys(re.findall(r"`([a-z]+)`", names), word)
    return found


@pytest.mark.parametrize(("column", "bounds"), [("Bound", BOUNDS), ("Field", BOUNDS_OF_FIELDS)])
def test_every_bound_of_the_manual_equals_that_of_the_code(column: str, bounds: dict[str, int]) -> None:
    rows = table("Frames", column)
    assert {row[0]: int(re.sub(r"[^0-9]", "", row[1])) for row in rows} == bounds


@pytest.mark.parametrize(("title", "union"), [("From the daemon", ToWorker), ("From the worker", FromWorker)])
def test_the_manual_lists_every_message_with_its_fields(title: str, union: Any) -> None:
    listed = {row[0].strip("`"): row[1] for row in table(title, "Type")}
    kinds = {str(fields(kind)[0].default): kind for kind in get_args(union)}
    assert listed.pop("result", "see below") == "see below"
    kinds.pop("result", None)
    assert {tag: stated(cell) for tag, cell in listed.items()} == {tag: typed(kinds[tag]) for tag in kinds}


def test_the_manual_lists_the_fields_of_a_result() -> None:
    rows = {row[0].strip("`"): row[1] for row in table("From the worker", "Field")}
    names = [field.name for field in fields(ResultMessage)][1:]
    assert sorted(rows) == sorted(names)
    absent = {name for name, text in rows.items() if text.endswith("; may be absent")}
    assert absent == {field.name for field in fields(ResultMessage)[1:] if field.default is None}


def test_the_manual_names_every_value_of_a_result_and_of_a_broken_file() -> None:
    rows = {row[0].strip("`"): row[1] for row in table("From the worker", "Field")}
    for name in ("kind", "limit"):
        hint = get_type_hints(ResultMessage)[name]
        choices = get_args(hint) if get_origin(hint) is Literal else get_args(get_args(hint)[0])
        assert set(re.findall(r"`([a-z_]+)`", rows[name])) - {"tool_error"} == set(choices) - {"tool_error"}
    (sentence,) = re.findall(r"`stage` is (.*?), `line`", MANUAL)
    assert set(re.findall(r"`([a-z]+)`", sentence)) == set(get_args(get_type_hints(BrokenMessage)["stage"]))


def test_the_manual_names_every_field_of_a_context() -> None:
    (sentence,) = re.findall(r"`context` has the text fields (.*)", MANUAL)
    assert set(re.findall(r"`([a-z_]+)`", sentence)) == set(CallContext.__annotations__)


def test_the_descriptors_of_the_manual_equal_those_of_the_code() -> None:
    numbers = {row[0]: row[1] for row in table("Descriptors of a worker", "Descriptor")}
    assert numbers[str(setup.LIFE)].startswith("The keeper's life line")
    assert numbers[str(setup.PROTOCOL)].startswith("The protocol")
    assert numbers[str(setup.ABORT)].startswith("The abort channel")
    assert numbers[str(setup.REPORTS)].startswith("The reports")
