"""The messages of the bridge: the vectors, the page, and lines of every kind."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.adapters.bridge import messages
from toolcell.adapters.bridge.requests import REQUESTS, HostRequest, RequestFault, read
from toolcell.client import (
    FileData,
    Gap,
    ImageData,
    Kind,
    Log,
    Metadata,
    Outcome,
    Problem,
    Progress,
    ResourceLink,
    Started,
    Text,
    ToolInfo,
    Update,
)

DOCS: Final = Path(__file__).parents[3] / "docs"
PAGE: Final = (DOCS / "bridge.md").read_text(encoding="utf-8")
VECTORS: Final[dict[str, list[dict[str, Any]]]] = json.loads((DOCS / "vectors" / "bridge.json").read_text())

TOOL: Final = ToolInfo(
    "words", "Count words.", {"type": "object"}, "local", "words.py", True, None, False, False
)
CONTENT: Final = (
    Text("2 \N{LINE SEPARATOR} words"),
    ImageData(b"png", "image/png"),
    FileData(b"a,b", "text/csv", "a.csv"),
    ResourceLink("https://example.org", "an example"),
)
PROBLEM: Final = Problem("torn.py", "", "broken", "'(' was never closed", 1)
FAULT: Final = RequestFault(
    "unavailable", "No daemon runs here.", "Start the daemon: toolcell serve", to="open", session="s"
)
OFFERED: Final = {"words": TOOL}
SAID: Final[dict[str, Any]] = {
    "hello": messages.hello(64, 256),
    "opened": messages.opened("s", "s-1", OFFERED, (PROBLEM,)),
    "tools": messages.tools("s", OFFERED, (), reloaded=True),
    "event: started": messages.happened("s", "1", Started("w-1", 0.5)),
    "event: update": messages.happened("s", "1", Update(CONTENT, {"n": 1})),
    "event: progress": messages.happened("s", "1", Progress(1, 2, "half")),
    "event: metadata": messages.happened("s", "1", Metadata("Two rows", {"rows": 2})),
    "event: log": messages.happened("s", "1", Log("info", "log", "a line")),
    "event: gap": messages.happened("s", "1", Gap(3)),
    "ask": messages.asked(
        "s", "1", 1, {"question": "Really?", "permission": "", "patterns": [], "always": [], "details": None}
    ),
    "request": messages.requested("s", "1", 2, "session.send", {"prompt": "Hi"}),
    "ended": messages.ended("s", "1", Outcome(Kind.ok, content=CONTENT[:1], ran=True)),
    "closed": messages.closed("s"),
    "error": messages.failed(FAULT),
}
"""Each message of ours, with the version of the vectors."""


def names(vectors: list[dict[str, Any]]) -> list[str]:
    return [vector["name"] for vector in vectors]


def lines(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", VECTORS[kind], ids=names(VECTORS[kind]))


@lines("requests")
def test_a_message_of_a_host_is_read(vector: dict[str, Any]) -> None:
    said: dict[str, Any] = json.loads(vector["line"])
    found = read(vector["line"].encode())
    assert found.type == said.pop("type")
    for name, value in said.items():
        if value is not None:
            assert json.loads(json.dumps(getattr(found, name))) == value


def test_the_vectors_have_each_message_with_all_of_its_fields() -> None:
    said: dict[str, set[str]] = {}
    for vector in VECTORS["requests"]:
        message = json.loads(vector["line"])
        said.setdefault(message.pop("type"), set()).update(message)
    assert said == {name: {item.name for item in fields(kind)} for name, kind in REQUESTS.items()}


@lines("refused")
def test_a_line_that_is_no_message_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(RequestFault) as fault:
        read(vector["line"].encode())
    assert (fault.value.code, fault.value.to) == (vector["code"], vector["to"])


@lines("messages")
def test_our_messages_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    assert (
        messages.encode({**SAID[vector["name"]], **_version(vector["line"])}).decode()
        == vector["line"] + "\n"
    )


def _version(line: str) -> dict[str, str]:
    found = json.loads(line)
    return {"version": found["version"]} if found["type"] == "hello" else {}


def test_the_vectors_have_each_of_our_messages() -> None:
    assert names(VECTORS["messages"]) == list(SAID)


def rows(title: str) -> list[list[str]]:
    """The rows of the table below a heading, without its first two."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    found = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in found[2:]]


def test_the_page_has_every_field_of_a_hosts_messages_in_their_order() -> None:
    written: dict[str, list[str]] = {}
    kind = ""
    for first, named, *_ in rows("What a host says"):
        kind = first.strip("`") or kind
        written.setdefault(kind, []).extend(re.findall(r"`(\w+)`", named))
    declared = {
        name: [item.name for item in fields(kind) if item.name != "session"]
        for name, kind in REQUESTS.items()
    }
    assert {name: sorted(found) for name, found in written.items()} == {
        name: sorted(found) for name, found in declared.items()
    }


def test_the_page_has_the_fields_of_our_messages() -> None:
    for first, named, _ in rows("What the bridge says"):
        kind = first.strip("`")
        found = set(re.findall(r"`(\w+)`", named.split(", and the fields")[0]))
        for name, message in SAID.items():
            if message["type"] == kind:
                assert found <= message.keys()
                if kind != "event":
                    assert found | {"type"} == message.keys(), name
    assert {row[0].strip("`") for row in rows("What the bridge says")} == {
        one["type"] for one in SAID.values()
    }


def test_the_page_has_every_code() -> None:
    package = Path(messages.__file__).parent
    raised = {
        code
        for path in package.glob("*.py")
        for code in re.findall(r'RequestFault\(\s*"(\w+)"', path.read_text())
    }
    assert raised == {code for first, _ in rows("Errors") for code in re.findall(r"`(\w+)`", first)}


def read_or_fault(line: bytes) -> HostRequest | RequestFault:
    try:
        return read(line)
    except RequestFault as fault:
        return fault


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_fault(line: bytes) -> None:
    found = read_or_fault(line)
    assert isinstance(found, HostRequest) or messages.encode(messages.failed(found)).isascii()


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(list(REQUESTS)), st.data())
def test_any_values_of_fields_are_a_message_or_a_fault(kind: str, data: st.DataObject) -> None:
    known = [item.name for item in fields(REQUESTS[kind])]
    values = data.draw(st.dictionaries(st.sampled_from(known), JSON))
    line = json.dumps({"session": "s", **values, "type": kind}).encode()
    found = read_or_fault(line)
    assert (
        found.type == kind
        if isinstance(found, HostRequest)
        else (found.code, found.to) == ("invalid_message", kind)
    )


def test_what_is_no_json_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        messages.encode(messages.happened("s", "1", Progress(float("nan"), None, "")))
