"""What a server offers beside tools: its lists, the requests that can be made, and what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from toolcell import ToolError
from toolcell._results.content import File
from toolcell._results.errors import InvalidArguments
from toolcell._servers import offers
from toolcell._servers.connection import RpcError
from toolcell._servers.load import name_of


def listed(**lists: Any) -> tuple[list[dict[str, Any]], list[str]]:
    found, problems = offers.listed({"tools": [], **lists}, lambda prompt: name_of("s", prompt))
    assert all(problem.remark for problem in problems), "its tools are used all the same"
    return found, [problem.message for problem in problems]


def test_a_list_may_have_anything_and_what_has_an_address_is_offered() -> None:
    entries: list[Any] = [
        {},
        {"uri": 5},
        {"uri": ""},
        {"uri": "x" * 5000},
        {"uri": "a:b", "size": True, "name": 7},
        {"uri": "a:b"},
    ]
    prompts: list[Any] = [
        {"name": "p q", "arguments": [5, {}, {"name": "a", "required": 1}, {"name": "b", "required": True}]}
    ]
    found, problems = listed(resources=entries, prompts=prompts)
    assert problems == []
    resource, prompt = found
    assert (resource["key"], resource["name"], resource["size"]) == ("a:b", "a:b", None)
    assert (prompt["key"], prompt["name"]) == ("p q", "s_p_q")
    assert [(each["name"], each["required"]) for each in prompt["arguments"]] == [("a", False), ("b", True)]


def test_a_long_list_is_cut_and_one_that_fails_is_none() -> None:
    many = [{"uri": f"a:{number}"} for number in range(1001)]
    found, problems = listed(
        resources=many, resourceTemplates=RpcError(-32603, "no"), prompts=RpcError(-32601, "no such method")
    )
    assert len(found) == 1000
    assert problems == [
        "the server has more resources than are listed; the first 1000 are",
        "the server lists no resourceTemplates: no",
    ]
    found, problems = listed(
        resources=[{"uri": f"a:{number:02000}", "description": "x" * 5000} for number in range(900)]
    )
    assert sum(len(offer["key"]) for offer in found) < offers.CHARACTERS_MAX
    assert problems == [f"the server has more resources than are listed; the first {len(found)} are"]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"method": "tools/call", "params": {}},
        {"method": ["resources/read"], "params": {}},
        {"method": "prompts/get", "params": 5},
    ],
)
def test_no_other_request_can_be_made(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        offers.request_of(arguments)


def test_a_resource_is_its_parts_and_what_they_are() -> None:
    returned = {
        "contents": [
            {"uri": "a:b", "text": "t", "mimeType": "text/x"},
            {"uri": "a:/c.bin", "blob": "AP8="},
            5,
            {"text": "u", "uri": 7},
        ]
    }
    result = offers.READERS["resources/read"](returned)
    assert isinstance(result.content, list)
    text, file, other = result.content
    assert (text, other) == ("t", "u")
    assert isinstance(file, File)
    assert (file.data, file.name, file.mime_type) == (b"\x00\xff", "c.bin", "application/octet-stream")
    assert result.details == {"contents": [{"uri": "a:b", "mimeType": "text/x"}, {"uri": "a:/c.bin"}, {}]}
    assert offers.READERS["resources/read"]({"contents": "x"}).content == []
    blobs: tuple[dict[str, Any], ...] = ({}, {"blob": "?"}, {"blob": 5})
    for wrong in blobs:
        with pytest.raises(ToolError):
            offers.READERS["resources/read"]({"contents": [wrong]})


def test_a_role_of_a_prompt_is_one_of_two() -> None:
    said = [
        {"role": role, "content": {"type": "text", "text": "t"}}
        for role in ("user", "assistant", "system", 5, ["user"])
    ]
    result = offers.READERS["prompts/get"]({"messages": said, "description": 5})
    assert result.details == {
        "description": "",
        "messages": [{"role": role} for role in ("user", "assistant", "user", "user", "user")],
    }


def test_a_completion_has_texts_alone() -> None:
    read = offers.READERS["completion/complete"]
    assert read({"completion": {"values": ["a", 5, None], "total": True}}).details == {
        "values": ["a"], "total": None, "hasMore": False,
    }  # fmt: skip
    many = read({"completion": {"values": ["a"] * 200, "total": 200}}).details
    assert many == {"values": ["a"] * 100, "total": 200, "hasMore": True}
    assert read({"completion": 5}).details == {"values": [], "total": None, "hasMore": False}
