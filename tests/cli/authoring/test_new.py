"""`toolcell new KIND` writes an example that works."""

from __future__ import annotations

import json
import os

import pytest
from tests.cli.conftest import Project
from tests.engines import BUN


def test_an_unknown_kind_names_those_there_are(project: Project) -> None:
    done = project.run("new", "toml")
    assert done.code == 2
    assert "Take one of: python, json, factory, fastmcp, typescript" in done.err


@pytest.mark.slow
def test_a_python_tool_is_that_of_init(project: Project) -> None:
    done = project.run("new", "python")
    assert (done.code, done.err) == (0, "")
    assert "toolcell call hello name=World" in done.out
    assert (project.tools / "hello.py").is_file()


@pytest.mark.slow
def test_a_json_tool_works_and_stands_beside_its_schema(project: Project) -> None:
    done = project.run("new", "json")
    assert done.out == (
        "Wrote .toolcell/plugins/hello.json. Call it:\n  toolcell call hello-find pattern=TODO\n"
    )
    written = project.directory / ".toolcell" / "plugins" / "hello.json"
    declared = json.loads(written.read_text())
    assert json.loads((written.parent / declared["$schema"]).read_text())["title"] == "Toolcell plugin file"
    checked = project.run("check")
    assert (checked.code, checked.out) == (0, ".toolcell/plugins/hello.json  hello-find, hello-read\n")
    (project.directory / "a.txt").write_text("one\n-x TODO\n")
    assert project.run("call", "hello-find", "pattern=-x TODO", "directory=a.txt").out == "2:-x TODO\n"
    assert project.run("call", "hello-find", "pattern=nowhere", "directory=a.txt").code == 0
    assert project.run("call", "hello-read", "path=a.txt").out == "one\n-x TODO\n"


@pytest.mark.slow
def test_a_tool_in_typescript_works_and_names_what_is_missing_without_an_engine(project: Project) -> None:
    done = project.run("new", "typescript", "hello")
    assert done.out == "Wrote .toolcell/tools/hello.ts. Call it:\n  toolcell call hello name=World\n"
    engine = {"PATH": f"{BUN.parent}:/usr/bin:/bin"}
    said = project.run("call", "./.toolcell/tools/hello.ts", "name=Ada", "times:=2", env=engine)
    assert (said.code, said.out) == (0, "Hello Ada!\nHello Ada!\n"), said
    types = project.tools / "toolcell.d.ts"
    assert 'declare module "toolcell"' in types.read_text()
    checked = project.run("check", env=engine)
    assert (checked.code, checked.out) == (0, ".toolcell/tools/hello.ts  hello\n"), "types are no tool file"
    again = project.run("new", "typescript", "hello")
    assert (again.code, "is there already" in again.err) == (2, True)
    for name in ("a b", "_mine", "a__b", "9"):
        assert project.run("new", "typescript", name).code == 2


@pytest.mark.parametrize(
    ("kind", "linked", "code"),
    [
        ("typescript", ".toolcell/tools/toolcell.d.ts", 0),
        ("json", ".toolcell/plugins/_schema.json", 0),
        ("json", ".toolcell/plugins/hello.json", 2),
    ],
)
def test_a_planted_link_to_a_file_is_not_written_through(
    project: Project, kind: str, linked: str, code: int
) -> None:
    kept = project.directory.parent / "kept"
    kept.write_text("mine")
    (project.directory / linked).parent.mkdir(parents=True, exist_ok=True)
    (project.directory / linked).symlink_to(kept)
    assert project.run("new", kind).code == code
    assert kept.read_text() == "mine"
    assert (project.directory / linked).is_symlink() == (code == 2), "a file of ours takes the link's place"


@pytest.mark.parametrize("linked", [".toolcell", ".toolcell/tools", ".toolcell/plugins"])
def test_nothing_is_written_into_a_directory_that_is_a_planted_link(project: Project, linked: str) -> None:
    outside = project.directory.parent / "outside"
    outside.mkdir()
    project.tools.rmdir()
    if linked == ".toolcell":
        project.tools.parent.rmdir()
    (project.directory / linked).symlink_to(outside)
    for kind in ("python", "json", "typescript"):
        done = project.run("new", kind, f"my{kind}")
        wanted = "plugins" if kind == "json" else "tools"
        assert done.code == (2 if linked in (".toolcell", f".toolcell/{wanted}") else 0), done
    assert list(outside.iterdir()) == []


@pytest.mark.slow
def test_a_json_file_that_is_there_stays(project: Project) -> None:
    project.run("new", "json", "mine")
    written = project.directory / ".toolcell" / "plugins" / "mine.json"
    written.write_text("{}")
    done = project.run("new", "json", "mine")
    assert (done.code, written.read_text()) == (2, "{}")
    assert "is there already" in done.err


@pytest.mark.slow
def test_a_json_file_anywhere_is_checked_and_called_by_its_path(project: Project) -> None:
    made = project.run("new", "json", "elsewhere/mine.json", "--json").json("new")
    assert made["command"] == "toolcell call ./elsewhere/mine.json:mine-find pattern=TODO"
    (project.directory / "a.txt").write_text("TODO\n")
    done = project.run("call", "./elsewhere/mine.json:mine-find", "pattern=TODO", "directory=a.txt")
    assert done.out == "1:TODO\n"
    mine = project.directory / "elsewhere" / "mine.json"
    mine.write_text(mine.read_text().replace("grep -rn", "grep | grep"))
    checked = project.run("check", "elsewhere/mine.json")
    assert checked.code == 1
    assert "tools[0] (mine-find): handler.command: has the shell operator '|'" in checked.out


@pytest.mark.slow
def test_a_name_that_is_none_is_refused(project: Project) -> None:
    for name in ("_mine", ".json", "a b", "a__b", "x" * 50):
        assert project.run("new", "json", name).code == 2


@pytest.mark.slow
def test_a_factory_and_a_fastmcp_file_work(project: Project) -> None:
    assert "toolcell call greeter name=World" in project.run("new", "factory", "greeter").out
    assert project.run("new", "fastmcp", "served").code == 0
    assert project.run("check").out == (
        ".toolcell/tools/greeter.py  greeter, greeter_count\n.toolcell/tools/served.py   served\n"
    )
    assert project.run("call", "greeter", "name=Ada").out.startswith("Hello Ada! You are number 1 in ")
    assert project.run("call", "served", "name=Ada").out == "Hello Ada!\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["python", "factory", "fastmcp", "typescript"])
def test_a_name_that_is_taken_is_answered_with_the_command_for_another_of_the_kind(
    project: Project, kind: str
) -> None:
    assert project.run("new", kind).code == 0
    done = project.run("new", kind)
    assert (done.code, done.err.splitlines()[-1]) == (2, f"  Name another: toolcell new {kind} NAME")
    assert project.run("new", kind, "a b").err.rstrip().endswith(f"toolcell new {kind} word_count")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then"), [("python", "typescript"), ("typescript", "python"), ("fastmcp", "typescript")]
)
def test_two_kinds_do_not_write_one_name_twice(project: Project, first: str, then: str) -> None:
    there = json.loads(project.run("new", first, "--json").out)["path"]
    done = project.run("new", then)
    assert done.code == 2
    assert done.err.splitlines() == [
        f"toolcell: {os.path.relpath(there, project.directory)} has a tool hello already.",
        f"  Name another: toolcell new {then} NAME",
    ]
    assert len([name for name in os.listdir(os.path.dirname(there)) if name.startswith("hello")]) == 1
    assert project.run("new", then, "./hello").code == 0  # elsewhere it is called by its path
