"""The manual of the worker protocol agrees with the code: it has every message, bound and descriptor.

The fields of the messages are told by their types alone, and shown by the vectors (tests/daemon/protocol/test_messages.py).
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from toolcell._results.normalise import BLOCKS_MAX
from toolcelld.calls import questions
from toolcelld.output import result
from toolcelld.protocol import frames, messages
from toolcelld.protocol.messages import PROTOCOL_VERSION, FromWorker, ResultMessage, ToWorker
from toolcelld.sandbox import setup

ROOT: Final = Path(__file__).parents[3]
MANUAL: Final = (ROOT / "docs/worker-protocol.md").read_text(encoding="utf-8")

BOUNDS: Final = {
    "A header": frames.HEADER_BYTES_MAX,
    "A payload in one frame": frames.PAYLOAD_BYTES_MAX,
    "A message to the worker, chunks joined": messages.MESSAGE_BYTES_MAX,
    "A description, chunks joined": messages.DESCRIPTION_BYTES_MAX,
    "Blocks of a result": BLOCKS_MAX,
    "Details of a result that go along; longer ones are kept beside": result.DETAILS_BYTES_MAX,
    "Metadata of a call": messages.METADATA_BYTES_MAX,
    "A question with its patterns and details, a request with its arguments, a reply": questions.QUESTION_BYTES_MAX,
    "Open questions and requests of a call": questions.OPEN_MAX,
    "Records of one `log`": messages.RECORDS_MAX,
}
OF_THE_MESSAGE: Final = {"type", "seq", "size"}
"""Fields of a result that the manual explains with the messages, and not in the table of the result."""


def table(title: str, first: str) -> list[list[str]]:
    """The rows below a heading of the table whose first column is called so."""
    below = re.split(r"^#+ ", MANUAL.split(f"# {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = iter(below.splitlines())
    found = [line for line in lines if line.startswith(f"| {first} |")]
    assert len(found) == 1, f"one table with {first}"
    rows = below.split(found[0])[1].splitlines()[2:]
    body = rows[: rows.index("") if "" in rows else None]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in body]


def types_of(union: Any) -> dict[str, Any]:
    """The messages of a direction by their type."""
    return {str(fields(kind)[0].default): kind for kind in get_args(union)}


def test_every_bound_of_the_manual_equals_that_of_the_code() -> None:
    assert {row[0]: int(re.sub(r"[^0-9]", "", row[1])) for row in table("Frames", "Bound")} == BOUNDS


def test_the_manual_has_the_version_of_the_protocol() -> None:
    assert f"The version of this protocol is {PROTOCOL_VERSION}.\n" in MANUAL


@pytest.mark.parametrize(("title", "union"), [("From the daemon", ToWorker), ("From the worker", FromWorker)])
def test_the_manual_lists_every_message_once(title: str, union: Any) -> None:
    listed = [row[0].strip("`") for row in table(title, "Type")]
    assert sorted(listed) == sorted(types_of(union))


def test_the_manual_names_the_messages_of_a_worker_that_may_be_split() -> None:
    (sentence,) = re.findall(r"^Of a worker's messages only (.*) may be split\.$", MANUAL, re.MULTILINE)
    split = {name for name, kind in types_of(FromWorker).items() if "size" in kind.__slots__}
    assert set(re.findall(r"`(\w+)`", sentence)) == split


def test_the_manual_explains_every_field_of_a_result() -> None:
    named = [name for row in table("The result", "Field") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted({field.name for field in fields(ResultMessage)} - OF_THE_MESSAGE)


def test_the_modules_that_the_manual_leaves_the_rest_to_exist() -> None:
    named = re.findall(r"`((?:daemon/toolcelld|sandbox|worker)/[\w/]+\.py)`", MANUAL)
    assert len(named) >= 5
    places = {name if name.startswith("daemon/") else f"daemon/toolcelld/{name}" for name in named}
    assert [place for place in sorted(places) if not (ROOT / place).is_file()] == []


def test_the_descriptors_of_the_manual_equal_those_of_the_code() -> None:
    numbers = {row[0]: row[1] for row in table("Descriptors of a worker", "Descriptor")}
    assert numbers[str(setup.LIFE)].startswith("The keeper's life line")
    assert numbers[str(setup.PROTOCOL)].startswith("The protocol")
    assert numbers[str(setup.ABORT)].startswith("The abort channel")
    assert numbers[str(setup.REPORTS)].startswith("The reports")
    assert numbers[str(setup.HANDOVER)].startswith("The handover")
