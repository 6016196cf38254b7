"""The tools of a server: their names, and what its list may have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolcell import ToolError
from toolcell._authoring.discover import Exports
from toolcell._results.errors import InvalidArguments
from toolcell._servers import load
from toolcell._servers.connection import ServerBroken
from toolcell._servers.load import name_of
from toolcell._servers.result import result_of

SCHEMA = {"type": "object"}


def exports(*listed: dict[str, Any], chosen: tuple[str, ...] = ()) -> Exports:
    return load.RunningServer(["never-started"], 1, "s", chosen).exports({"tools": list(listed)})


@given(st.text(max_size=100))
@example("a__b___c")
@example("x" * 100)
@example("../../\x1b[31m")
@example("\ud800")
def test_every_name_comes_to_one_that_a_tool_may_have(tool: str) -> None:
    name = name_of("git", tool)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    assert "__" not in name
    assert name == "git" or name.startswith("git_")


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("status", "git_status"),
        ("git_status", "git_status"),
        ("git", "git"),
        ("gitlab", "git_gitlab"),
        ("a.b/c", "git_a_b_c"),
    ],
)
def test_a_name_is_that_of_the_source_and_the_tool(tool: str, name: str) -> None:
    assert name_of("git", tool) == name


def test_long_names_with_one_beginning_stay_apart() -> None:
    assert name_of("git", "x" * 90 + "a") != name_of("git", "x" * 90 + "b")


def test_a_list_may_have_anything_and_the_tools_of_it_are_used() -> None:
    found = exports(
        {},
        {"name": 5},
        {"name": ""},
        {"name": "a", "inputSchema": [], "outputSchema": 7, "annotations": "x", "description": 3, "title": 4},
        {
            "name": "b",
            "inputSchema": {"$schema": "x", "properties": {"p": {"type": "string"}}},
            "annotations": {"readOnlyHint": 1, "title": "B\n b"},
        },
        {"name": "b", "inputSchema": SCHEMA},
        {"name": "c", "description": "é" * 9000, "inputSchema": SCHEMA},
        {"name": "d", "inputSchema": SCHEMA, "outputSchema": {"type": "array"}},
    )
    a, b, c, d = found.tools
    assert (a.name, a.description, a.input_schema, a.options) == (
        "s_a",
        "a",
        {"properties": {}, "type": "object"},
        {},
    )
    assert b.input_schema == {"properties": {"p": {"type": "string"}}, "type": "object"}
    assert (b.description, b.options) == ("B b", {"title": "B b"})
    assert len(c.description.encode()) <= load.DESCRIPTION_BYTES_MAX
    assert d.output_schema is None
    (problem,) = found.problems
    assert problem.message == "the server has two tools that come to the name s_b; the first is used"


def test_more_tools_than_fit_are_named_and_a_choice_is_kept_to() -> None:
    many = [{"name": f"t{number}"} for number in range(300)]
    found = exports(*many)
    assert len(found.tools) == load.TOOLS_MAX
    assert "300 tools; only the first 128 are used" in found.problems[0].message
    chosen = exports(*many, chosen=("t7", "t29?", "no"))
    assert len(chosen.tools) == 11
    assert "tools has 'no'" in chosen.problems[0].message


def test_arguments_are_an_object_and_nothing_else_is_looked_at() -> None:
    (tool,) = exports({"name": "a", "inputSchema": {"type": "object", "required": ["x"]}}).tools
    assert tool.arguments(b'{"y": [1, 2.5, null]}') == {"y": [1, 2.5, None]}
    for wrong in (b"[]", b"3", b'{"a": NaN}', b"{", b'{"a": 1e999}'):
        with pytest.raises(InvalidArguments):
            tool.arguments(wrong)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "data": "?", "mimeType": "image/png"},
        {"type": "image"},
        {"type": "resource"},
        {"type": "audio", "data": 5},
    ],
)
def test_content_that_cannot_be_read_is_an_error_of_the_tool(part: dict[str, Any]) -> None:
    with pytest.raises(ToolError):
        result_of({"content": [part]})


def test_a_result_may_have_anything() -> None:
    assert result_of({}).content == []
    assert result_of({"content": "x", "isError": "yes"}).is_error is False
    odd = result_of({"content": [5, None, {"type": ["a"]}, {"type": "text", "text": 3}]})
    assert odd.content == [
        "(content of the type 'None', which is not shown)",
        "(content of the type 'None', which is not shown)",
        "(content of the type \"['a']\", which is not shown)",
        "3",
    ]


@pytest.mark.parametrize(
    ("said", "binary", "program"),
    [
        ('{"bin": "cli.js"}', "", "cli.js"),
        ('{"bin": {"server": "a.js", "other": "b.js"}}', "", "a.js"),
        ('{"bin": {"other": "b.js"}}', "", "b.js"),
        ('{"bin": {"x": "a.js", "other": "b.js"}}', "other", "b.js"),
        ('{"bin": {"x": "a.js", "other": "b.js"}}', "", None),
        ('{"bin": {"x": "a.js"}}', "other", None),
        ('{"bin": 5}', "", None),
        ("[]", "", None),
        ("{", "", None),
    ],
)
def test_the_program_of_a_package_is_the_one_that_npx_takes(
    said: str, binary: str, program: str | None, tmp_path: Path
) -> None:
    package = tmp_path / "node_modules" / "@a" / "server"
    package.mkdir(parents=True)
    (package / "package.json").write_text(said)
    npm = {"package": "@a/server", "binary": binary, "place": str(tmp_path)}
    if program is None:
        with pytest.raises(ServerBroken, match="@a/server has no program"):
            load._program_of(npm)  # pyright: ignore[reportPrivateUsage]
    else:
        assert load._program_of(npm) == str(package / program)  # pyright: ignore[reportPrivateUsage]


def test_an_entry_whose_server_does_not_start_says_why() -> None:
    entry = {"name": "s", "command": ["/no/such/program"], "tools": [], "calls": 1}
    with pytest.raises(
        load.ServerFileError, match="the server did not start: /no/such/program cannot be started"
    ):
        load.read(json.dumps(entry).encode())
