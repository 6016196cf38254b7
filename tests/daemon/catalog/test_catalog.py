"""A catalog from a scan and descriptions: precedence, what is refused, what is kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.catalog import assembly
from toolcelld.catalog.assembly import assemble, redefined
from toolcelld.catalog.catalog import Catalog, ToolInfo, render
from toolcelld.catalog.describing.description import BrokenFile, Described, Description, Rejected
from toolcelld.catalog.discovery.scan import Scan
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.catalog.problem import Problem

SCHEMA = b'{"type":"object"}'


def tool_file(
    path: str, digest: str = "1", *, scope: str = "local", content: bytes = b"", python: str | None = None
) -> ToolFile:
    stem = path.rpartition("/")[2].removesuffix(".py")
    source = {"local": "project", "global": "user"}.get(scope, scope)
    return ToolFile(f"/p/{path}", source, scope, stem, content, f"{path} {digest}", "/p", python)


def scanned(*found: ToolFile | Problem) -> Scan:
    return Scan("/p", found)


def a_tool(name: str, description: str = "Does it.", **options: object) -> Described:
    return Described(name, description, SCHEMA, name, options, 3)


def typed(output_schema: bytes) -> Described:
    return replace(a_tool("x"), output_schema=output_schema)


def gives(*names: str) -> Description:
    return Description(tuple(map(a_tool, names)))


def of_one(description: Description, previous: Catalog | None = None) -> Catalog:
    file = tool_file("a.py")
    return assemble(scanned(file), {file.digest: description}, previous)


def test_a_description_survives_its_journey_through_the_cache() -> None:
    described = Description(
        (a_tool("lint", "Prüft.", timeout=3, network=["a"]),), (Rejected("x", "no", 4),), None
    )
    assert Description.from_json(described.to_json()) == described
    broken = Description(broken=BrokenFile("import", "No module named 'x'", 3, "x"))
    assert Description.from_json(broken.to_json()) == broken


@given(
    st.binary(max_size=50)
    | st.recursive(st.integers(), st.lists).map(lambda value: json.dumps(value).encode())
)
def test_a_damaged_cache_is_refused_as_a_value(raw: bytes) -> None:
    with pytest.raises(ValueError):
        Description.from_json(raw + b"]")


def test_the_first_scope_wins_and_the_other_is_listed_as_shadowed() -> None:
    local, other = tool_file("t/lint.py"), tool_file("u/lint.py", scope="global")
    catalog = assemble(
        scanned(local, other), {local.digest: gives("lint"), other.digest: gives("lint", "fix")}
    )
    assert {name: tool.path for name, tool in catalog.tools.items()} == {
        "fix": "/p/u/lint.py",
        "lint": "/p/t/lint.py",
    }
    (problem,) = catalog.problems
    assert (problem.reason, problem.tool, problem.path) == ("shadowed", "lint", "/p/u/lint.py")
    assert problem.message == "lint of u/lint.py is hidden by that of t/lint.py"


def test_a_name_twice_in_one_scope_is_rejected_with_both_paths() -> None:
    first, second = tool_file("a.py"), tool_file("b.py")
    catalog = assemble(scanned(first, second), {first.digest: gives("lint"), second.digest: gives("lint")})
    assert catalog.tools["lint"].path == "/p/a.py"
    (problem,) = catalog.problems
    assert (problem.reason, problem.tool) == ("rejected", "lint")
    assert (
        problem.message
        == "lint of b.py has the name of one in a.py, which is kept; rename one: @tool(name=…)"
    )


def test_the_tools_are_sorted_by_name() -> None:
    assert list(of_one(gives("c", "a", "b")).tools) == ["a", "b", "c"]


def test_what_a_file_declares_arrives_at_the_tool() -> None:
    options = {"name": "lint", "timeout": 5, "read_only": True, "network": ["a.example"]}
    tool = of_one(Description((replace(a_tool("lint"), options=options),))).tools["lint"]
    assert (tool.read_only, tool.destructive, tool.idempotent, tool.network) == (True, None, False, True)
    assert tool.declared == {"timeout": 5, "read_only": True, "network": ["a.example"]}
    assert (tool.scope, tool.export, tool.input_schema) == ("local", "lint", SCHEMA)


@pytest.mark.parametrize(
    ("said", "hint"), [({}, None), ({"destructive": False}, False), ({"destructive": True}, True)]
)
def test_a_hint_that_the_file_does_not_give_is_not_made_up(
    said: dict[str, object], hint: bool | None
) -> None:
    tool = of_one(Description((replace(a_tool("lint"), options=said),))).tools["lint"]
    assert (tool.destructive, tool.network) == (hint, None)


def test_a_schema_of_the_value_arrives_at_the_tool_and_survives_the_cache() -> None:
    schema = b'{"type":"object","properties":{"$ref":{"type":"integer"},"id":{"$ref":"#/$defs/a"}},"$defs":{"a":{}}}'
    description = Description.from_json(Description((typed(schema),)).to_json())
    assert of_one(description).tools["x"].output_schema == schema
    old = json.loads(Description((a_tool("x"),)).to_json())
    del old["tools"][0]["output_schema"]  # as before there were any
    assert of_one(Description.from_json(json.dumps(old).encode())).tools["x"].output_schema == b""


def test_a_hook_that_changes_a_definition_leaves_the_schema_of_the_value() -> None:
    tool = of_one(Description((typed(b'{"type":"object"}'),))).tools["x"]
    assert redefined(tool, "Other.", SCHEMA).output_schema == b'{"type":"object"}'


def test_a_title_is_one_line_that_controls_no_terminal() -> None:
    tool = of_one(Description((a_tool("lint", title="Lint\n\x1b[2J\u202eit"),))).tools["lint"]
    assert tool.title == "Lint\ufffd\ufffd[2J\ufffdit"


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (typed(b"{"), "its output schema is no JSON"),
        (typed(b"[" * 40_000), "its output schema is no JSON"),
        (typed(b"[]"), "its output schema is not one of an object"),
        (typed(b'{"type":"array"}'), "its output schema is not one of an object"),
        (typed(b'{"type":"object","x":"' + b"x" * 49_152 + b'"}'), "its two schemas have"),
        (
            typed(b'{"type":"object","properties":{"a":[{"$ref":"http://a.example/x"}]}}'),
            "its output schema leads out of itself, by $ref",
        ),
        (
            typed(b'{"type":"object","$schema":"file:///etc/passwd"}'),
            "its output schema leads out of itself, by $schema",
        ),
        (a_tool("x", title="t" * 201), "cannot be declared: title="),
        (a_tool("x", title=7), "cannot be declared: title=7"),
        (a_tool("a__b"), "its name must be 1 to 64 letters, digits, - and _, without __"),
        (a_tool(""), "its name must be"),
        (a_tool("a" * 65), "its name must be"),
        (a_tool("a\n"), "its name must be"),
        (a_tool("ä"), "its name must be"),
        (a_tool("../x"), "its name must be"),
        (a_tool("x", "d" * 9000), "its description has 9000 bytes, at most 8192 are read"),
        (a_tool("x", "\ud800"), "'utf-8' codec can't encode"),
        (a_tool("x", timeout="soon"), 'cannot be declared: timeout="soon" is no duration'),
        (replace(a_tool("x"), input_schema=b"{"), "its schema is no JSON"),
        (replace(a_tool("x"), input_schema=b"\xff"), "its schema is no JSON"),
        (replace(a_tool("x"), input_schema=b"[" * 40_000), "its schema is no JSON"),
        (replace(a_tool("x"), input_schema=b"[]"), "its schema is not one of an object"),
        (replace(a_tool("x"), input_schema=b'{"type":"string"}'), "its schema is not one of an object"),
        (
            replace(a_tool("x"), input_schema=b" " * 50_000),
            "its schema has 50000 bytes, at most 49152 are sent",
        ),
    ],
)
def test_a_tool_that_cannot_be_is_rejected_and_its_neighbour_stays(tool: Described, message: str) -> None:
    catalog = of_one(Description((tool, a_tool("ok"))))
    assert list(catalog.tools) == ["ok"]
    (problem,) = catalog.problems
    assert (problem.reason, problem.line) == ("rejected", 3)
    assert problem.message.startswith(message)


def test_a_file_has_a_bound_of_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "TOOLS_PER_FILE_MAX", 2)
    catalog = of_one(gives("a", "b", "c"))
    assert list(catalog.tools) == ["a", "b"]
    assert catalog.problems[0].message == "3 tools; only the first 2 of a file are used"


def test_a_directory_has_a_bound_of_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "TOOLS_MAX", 2)
    assert [problem.tool for problem in of_one(gives("a", "b", "c")).problems] == ["c"]


def test_what_a_worker_says_of_a_failure_is_bounded_and_can_be_sent() -> None:
    broken = BrokenFile("import", "\ud800" + "x" * 5000, -3)
    (problem,) = of_one(Description(broken=broken)).problems
    assert len(problem.message) == assembly.MESSAGE_LETTERS_MAX
    assert problem.message.encode()
    assert problem.line == 0


def test_control_characters_of_descriptions_are_escaped_and_those_of_names_refused() -> None:
    hostile = "Does it.\n\tWell\x1b[2J\x9b\r\u202e\u2028\U000e0041"
    tools = of_one(Description((a_tool("a", hostile),))).tools
    assert tools["a"].description == "Does it.\n\tWell\\x1b[2J\\x9b\\r\\u202e\\u2028\\U000e0041"
    for name in ("a\x1b[2J", "a\n", "a\x9b", "\u202ea"):
        catalog = of_one(Description((a_tool(name),)))
        assert not catalog.tools
        assert [problem.reason for problem in catalog.problems] == ["rejected"]
        assert "\x1b" not in render(catalog)
        assert "\u202e" not in render(catalog)


def test_a_missing_module_is_reported_with_its_remedy() -> None:
    missing = Description(
        broken=BrokenFile("import", "No module named 'pandas'", 3, "pandas", remedy="Install it.")
    )
    (problem,) = of_one(missing).problems
    assert (problem.reason, problem.line) == ("broken", 3)
    assert problem.message == "No module named 'pandas'\nInstall it."


def test_a_bad_edit_keeps_the_last_good_tools_and_their_bytes() -> None:
    good, bad = tool_file("a.py", "1", content=b"good"), tool_file("a.py", "2", content=b"bad")
    first = assemble(scanned(good), {good.digest: gives("lint")})
    broken = Description(broken=BrokenFile("import", "invalid syntax", 7))
    for _ in range(2):  # and still after another look
        first = assemble(scanned(bad), {bad.digest: broken}, first)
        assert first.tools["lint"].file.content == b"good"
        (problem,) = first.problems
        assert (problem.reason, problem.line) == ("stale", 7)
        assert problem.message == "invalid syntax; what it was before is still used"
    mended = assemble(scanned(bad), {bad.digest: gives("lint")}, first)
    assert mended.tools["lint"].file.content == b"bad"
    assert mended.problems == ()


def test_a_file_that_became_unreadable_keeps_its_last_good_tools() -> None:
    file = tool_file("a.py")
    before = assemble(scanned(file), {file.digest: gives("lint")})
    after = assemble(scanned(Problem("/p/a.py", "", "broken", "Permission denied")), {}, before)
    assert list(after.tools) == ["lint"]
    assert after.problems[0].reason == "stale"


def test_a_shadowed_tool_comes_back_when_the_file_before_it_goes() -> None:
    local, other = tool_file("t/lint.py"), tool_file("u/lint.py", scope="global")
    bad = tool_file("u/lint.py", "2", scope="global")
    both = assemble(scanned(local, other), {local.digest: gives("lint"), other.digest: gives("lint")})
    broken = {local.digest: gives("lint"), bad.digest: Description(broken=BrokenFile("import", "no"))}
    stale = assemble(scanned(local, bad), broken, both)
    assert [problem.reason for problem in stale.problems] == ["stale", "shadowed"]
    assert assemble(scanned(bad), broken, stale).tools["lint"].path == "/p/u/lint.py"


def test_a_deleted_file_takes_its_tools_along() -> None:
    before = of_one(gives("lint"))
    after = assemble(scanned(), {}, before)
    assert (after.tools, after.problems, after.files) == ({}, (), {})


def test_until_an_edited_file_is_described_its_old_tools_go_on() -> None:
    before = of_one(gives("lint"))
    after = assemble(scanned(tool_file("a.py", "2"), tool_file("b.py")), {}, before)
    assert (list(after.tools), after.pending, after.problems) == (["lint"], 2, ())
    assert list(after.outdated.values()) == [""]
    assert [after.awaits(name) for name in ("lint", "b", "b_more", "c")] == [True, True, True, True]


def test_a_file_that_is_still_to_be_described_may_hide_a_tool_of_its_name() -> None:
    before = of_one(gives("lint"))
    known = {tool_file("a.py").digest: gives("lint")}
    after = assemble(scanned(tool_file("lint.py"), tool_file("other.py"), tool_file("a.py")), known, before)
    assert after.awaits("lint")
    after = assemble(scanned(tool_file("lin.py"), tool_file("other.py"), tool_file("a.py")), known, before)
    assert not after.awaits("lint")


def test_a_catalog_knows_whether_only_its_number_differs() -> None:
    catalog = of_one(gives("lint"))
    assert replace(catalog, generation=9).says_the_same_as(catalog)
    assert not of_one(gives("lint", "fix")).says_the_same_as(catalog)


def test_the_listing_is_the_one_of_the_documentation() -> None:
    lint, index = tool_file("u/lint.py", scope="global"), tool_file("index.py")
    plot = tool_file(".toolcell/tools/plot.py")
    catalog = assemble(
        scanned(index, plot, lint),
        {
            index.digest: Description((a_tool("index", "Index the sources for search.\n\nMore."),)),
            lint.digest: Description(
                (a_tool("lint", "\nRun the project linter on a file and return results."),)
            ),
            plot.digest: Description(broken=BrokenFile("import", "No module named 'pandas'", 3, "pandas")),
        },
    )
    assert render(catalog) == (
        "Custom Tools:\n"
        "  index (local) — Index the sources for search.\n"
        "  lint (global) — Run the project linter on a file and return results.\n"
        "Problems:\n"
        "  .toolcell/tools/plot.py line 3: No module named 'pandas'"
    )


def test_the_listing_of_nothing_says_so() -> None:
    assert render(assemble(scanned(), {})) == "Custom Tools:\n  (none)"


def test_a_file_cannot_write_to_the_terminal_through_the_listing() -> None:
    text = render(of_one(Description((a_tool("x", "\x1b[2Jhello"),), (Rejected("y", "a\x07b"),))))
    assert "\x1b" not in text
    assert "\x07" not in text


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["local", "global", "team"]), st.lists(st.sampled_from("abcd"), max_size=4)
        ),
        max_size=6,
    )
)
def test_every_tool_of_every_file_is_a_winner_or_a_problem(files: list[tuple[str, list[str]]]) -> None:
    order = ["local", "global", "team"]
    files = sorted(files, key=lambda file: order.index(file[0]))
    entries = [tool_file(f"{number}.py", scope=scope) for number, (scope, _) in enumerate(files)]
    descriptions = {entry.digest: gives(*names) for entry, (_, names) in zip(entries, files, strict=True)}
    catalog = assemble(scanned(*entries), descriptions)
    told = [problem for problem in catalog.problems if problem.reason != "unused"]
    assert len(catalog.tools) + len(told) == sum(len(names) for _, names in files)
    assert len(catalog.problems) - len(told) == sum(not names for _, names in files)
    for name, tool in catalog.tools.items():
        first = next(entry for entry, (_, names) in zip(entries, files, strict=True) if name in names)
        assert isinstance(tool, ToolInfo)
        assert tool.path == first.path


def test_a_tool_that_is_switched_off_is_kept_apart_and_still_hides_no_worse_one() -> None:
    local, other = tool_file("t/lint.py"), tool_file("u/lint.py", scope="global")
    found = scanned(local, other)
    descriptions = {local.digest: gives("lint"), other.digest: gives("lint", "fix")}
    catalog = assemble(found, descriptions, is_enabled=lambda name: name != "lint")
    assert list(catalog.tools) == ["fix"]
    assert [(name, tool.path) for name, tool in catalog.disabled.items()] == [("lint", "/p/t/lint.py")]
    assert catalog.find("lint") is catalog.disabled["lint"]
    assert catalog.find("none") is None
    assert not catalog.says_the_same_as(assemble(found, descriptions, catalog)), "a change is published"
    assert "lint (" not in render(catalog)


def test_a_file_without_a_tool_is_noted_unless_another_one_imports_it() -> None:
    first, second, third = tool_file("a.py"), tool_file("utils.py"), tool_file("alone.py")
    found = {
        first.digest: replace(gives("lint"), helpers=("utils.py", "../alone.py", "deep/x.py")),
        second.digest: Description(),
        third.digest: Description(),
    }
    problems = assemble(scanned(first, second, third), found).problems
    assert [(problem.path, problem.reason) for problem in problems] == [("/p/alone.py", "unused")]
    assert problems[0].message.startswith("has no tool\nLooked for: ")
    for description in (
        Description(broken=BrokenFile("import", "no")),
        Description(problems=(Rejected("x", "no"),)),
    ):
        (problem,) = assemble(scanned(third), {third.digest: description}).problems
        assert problem.reason != "unused"
    assert assemble(scanned(third), {}).problems == (), "it is not described yet"


def test_a_description_with_too_many_helpers_is_refused() -> None:
    good = replace(gives("a"), helpers=("x.py",) * 1000)
    assert Description.from_json(good.to_json()) == good
    with pytest.raises(ValueError, match="helpers"):
        Description.from_json(replace(good, helpers=("x.py",) * 1001).to_json())


def test_the_name_of_a_built_in_tool_is_replaced_by_a_trusted_tool_with_the_flag_alone() -> None:
    shipped, mine = tool_file("b/files.py", scope="builtin"), tool_file("t/mine.py")
    descriptions = {shipped.digest: gives("file-reader"), mine.digest: gives("file-reader")}

    def of(*, trusted: bool, flag: bool) -> Catalog:
        return assemble(
            scanned(shipped, mine),
            descriptions,
            is_trusted=lambda tool: trusted or tool.scope == "builtin",
            overrides_builtin=lambda _: flag,
        )

    for trusted, flag in ((True, False), (False, True), (False, False)):
        catalog = of(trusted=trusted, flag=flag)
        found = catalog.tools["file-reader"]
        assert (found.scope, found.overrides_builtin) == ("builtin", False)
        (problem,) = catalog.problems
        assert (problem.reason, problem.path) == ("rejected", "/p/t/mine.py")
        assert "toolcell config set tool.file-reader.overrides_builtin true" in problem.message
    catalog = of(trusted=True, flag=True)
    found = catalog.tools["file-reader"]
    assert (found.scope, found.overrides_builtin) == ("local", True)
    (problem,) = catalog.problems
    assert (problem.reason, problem.path) == ("shadowed", "/p/b/files.py")
