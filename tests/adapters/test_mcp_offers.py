"""The addresses of servers' resources, and what was read of them, as a host has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import MCPError, types

from toolcell.adapters.mcp import offers
from toolcell.adapters.mcp.offers import ServerOffers
from toolcell.client import FileData, Kind, Offer, Outcome, ResourceLink, Text


def offer(server: str, key: str, kind: Any = "resource", name: str = "") -> Offer:
    return Offer(kind, f"{server}-mcp", f"/{server}.mcp", key, name or key, "", "", "", None, ())


def outcome(*content: Any, details: object = None, kind: Kind = Kind.OK) -> Outcome:
    return Outcome(kind=kind, content=content, details=details)


def uris(found: ServerOffers) -> list[str]:
    return [resource.uri for resource in found.resources]


def test_an_address_of_one_server_stays_and_one_of_two_says_which() -> None:
    found = ServerOffers([offer("a", "x://1"), offer("a", "x://2"), offer("b", "x://2")])
    assert uris(found) == ["x://1", "toolcell://server/a/x://2", "toolcell://server/b/x://2"]
    assert found.find("x://1") == ("a-mcp", "x://1")
    assert [found.find(uri) for uri in uris(found)[1:]] == [("a-mcp", "x://2"), ("b-mcp", "x://2")]
    with pytest.raises(MCPError, match="toolcell://server/a/x://2, toolcell://server/b/x://2"):
        found.find("x://2")
    # Nothing is promised by a list alone: the daemon knows whether there is such a server.
    assert found.find("toolcell://server/c/file:///etc/passwd") == ("c-mcp", "file:///etc/passwd")


def test_a_template_of_another_server_takes_no_address_over() -> None:
    found = ServerOffers([
        offer("a", "x://one"), offer("a", "x://p/{q}.txt", "template"),
        offer("b", "x://{+all}", "template"), offer("b", "{+all}", "template"), offer("b", "x://p/1.txt"),
    ])  # fmt: skip
    for uri in ("x://one", "x://p/1.txt", "x://p/2.txt"):
        with pytest.raises(MCPError, match="Several servers"):
            found.find(uri)
        assert found.find(f"toolcell://server/a/{uri}") == ("a-mcp", uri)
    assert found.find("x://other") == ("b-mcp", "x://other")
    with pytest.raises(MCPError, match="not found"):
        found.find("y://other")
    assert [each.uri_template for each in found.templates] == [
        "x://p/{q}.txt", "x://{+all}", "toolcell://server/b/{+all}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "uri", ["", "x", "toolcell://server/", "toolcell://server//x", "toolcell://server/a", "x" * 5000]
)
def test_what_is_no_address_is_found_nowhere(uri: str) -> None:
    found = ServerOffers([offer("a", "x://{y}", "template")])
    with pytest.raises(MCPError) as refused:
        found.find(uri)
    assert (refused.value.error.code, refused.value.error.data) == (types.INVALID_PARAMS, {"uri": uri})


@given(st.lists(st.text("ab/{}:", max_size=6), min_size=1, max_size=4), st.text("ab/:", max_size=8))
def test_a_template_fits_every_address_that_is_made_of_it(literals: list[str], value: str) -> None:
    plain = [literal.replace("{", "").replace("}", "") for literal in literals]
    found = ServerOffers([offer("a", "x:" + "{v}".join(plain), "template")])
    assert found.find("x:" + value.join(plain) or "x:") == ("a-mcp", "x:" + value.join(plain))


def test_a_link_leads_to_the_server_of_its_tool() -> None:
    found = ServerOffers([offer("a", "x://1"), offer("b", "x://2")])
    assert found.linked("/a.mcp", "x://1") == "x://1"
    assert found.linked("/a.mcp", "x://2") == "toolcell://server/a/x://2"
    assert found.linked("/a.mcp", "x://unlisted") == "toolcell://server/a/x://unlisted"
    assert found.linked("/a.mcp", "https://example.org/") == "https://example.org/"
    assert found.linked("/tools.py", "x://2") == "x://2"


def test_what_a_server_answers_is_under_no_address_of_another() -> None:
    found = ServerOffers([offer("a", "x://1"), offer("b", "x://2")])
    said = {"contents": [{"uri": "x://2"}, {"uri": "x://1", "mimeType": "text/x"}, {}, {"uri": ["x"]}]}
    content = (Text("two"), FileData(b"\xff", "a/b", "n"), Text("three"), Text("four"))
    result = offers.read(outcome(*content, details=said), "x://1", "x://1", "a-mcp", found)
    assert [each.uri for each in result.contents] == [
        "toolcell://server/a/x://2", "x://1", "x://1", "toolcell://server/a/['x']",
    ]  # fmt: skip
    assert isinstance(result.contents[1], types.BlobResourceContents)
    assert (result.contents[1].blob, result.contents[1].mime_type) == ("/w==", "text/x")


NOTHING: dict[str, Any] = {}
DETAILS: Sequence[Any] = (
    None,
    5,
    [NOTHING],
    {"contents": 5},
    {"contents": [5]},
    {"contents": [NOTHING] * 2},
)


@pytest.mark.parametrize("details", DETAILS)
def test_details_may_be_anything(details: object) -> None:
    """A hook may rewrite them, and a worker sends what it likes."""
    result = offers.read(outcome(Text("t"), details=details), "x://1", "x://1", "a-mcp", ServerOffers())
    (content,) = result.contents
    assert isinstance(content, types.TextResourceContents)
    assert (content.uri, content.text) == ("x://1", "t")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (-32002, types.INVALID_PARAMS),
        (-32602, types.INVALID_PARAMS),
        (5, types.INTERNAL_ERROR),
        ([-32602], types.INTERNAL_ERROR),
    ],
)
def test_a_failure_is_an_error_of_the_protocol(code: object, expected: int) -> None:
    failed = outcome(Text("no such book"), details={"code": code}, kind=Kind.TOOL_ERROR)
    with pytest.raises(MCPError, match="no such book") as refused:
        offers.read(failed, "x://1", "x://1", "a-mcp", ServerOffers())
    assert refused.value.error.code == expected


def test_the_messages_of_a_prompt_keep_their_kinds() -> None:
    found = ServerOffers([offer("a", "x://1"), offer("b", "x://2")])
    said = {"description": "d", "messages": [
        {"role": "user"}, {"role": "assistant", "resource": {"uri": "x://2", "mimeType": "text/x"}}, {"role": "root"},
    ]}  # fmt: skip
    content = (Text("t"), Text("r"), ResourceLink("x://2", "two", None))
    result = offers.messages(outcome(*content, details=said), "a-mcp", found)
    assert (result.description, [message.role for message in result.messages]) == (
        "d",
        ["user", "assistant", "user"],
    )
    embedded, link = result.messages[1].content, result.messages[2].content
    assert isinstance(embedded, types.EmbeddedResource)
    assert embedded.resource.uri == "toolcell://server/a/x://2"
    assert isinstance(link, types.ResourceLink)
    assert link.uri == "toolcell://server/a/x://2"
    with pytest.raises(MCPError, match="longer than"):
        offers.messages(outcome(Text("t"), details={"messages": []}), "a-mcp", found)


def test_a_completion_that_fails_has_no_values() -> None:
    said = {"values": ["a", "\x1b[31m"], "total": 2, "hasMore": True}
    assert offers.completion(outcome(details=said)).values == ["a", "\\x1b[31m"]
    assert offers.completion(outcome(details=said, kind=Kind.TOOL_ERROR)).values == []
    assert offers.completion(outcome(details={"values": 5})).values == []
