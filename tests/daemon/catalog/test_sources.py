"""One look at the sources: what is found, in which order, and what cannot be used."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcell._file_kinds import tool_stem
from toolcelld.catalog.discovery import digest as digests
from toolcelld.catalog.discovery import scan as scan_module
from toolcelld.catalog.discovery.scan import FILE_BYTES_MAX, Scan, scan
from toolcelld.catalog.discovery.sources import Source, ToolFile, project_above, sources_of
from toolcelld.catalog.problem import Problem
from toolcelld.config.load import Config
from toolcelld.config.schema import SourceSection
from toolcelld.environments.engine import MAGIC

PROJECT = ".toolcell/tools"
USER = ".config/toolcell/tools"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user of this test's own, who has no engine for scripts."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """An engine for scripts."""
    path = put(tmp_path / "bin/node", MAGIC)
    path.chmod(0o755)
    return path


def put(path: Path, content: str | bytes = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def look(directory: Path, config: Config | None = None) -> Scan:
    return scan(sources_of(config or Config(), str(directory)), str(directory))


def only_problem(directory: Path) -> Problem:
    found = look(directory)
    (problem,) = found.problems
    return problem


def test_an_empty_directory_has_nothing_and_no_problem(project: Path) -> None:
    assert look(project).found == ()
    (project / ".toolcell").write_text("a file where the directory would be")
    assert look(project).found == ()


def test_sources_come_in_order_and_files_sorted(project: Path, home: Path, tmp_path: Path) -> None:
    put(home / ".atomic/tools/d.py")
    put(home / ".config/toolcell/tools/c.py")
    put(project / ".atomic/tools/b.py")
    put(project / PROJECT / "a.py")
    put(project / PROJECT / "Z.py")
    put(tmp_path / "team/e.py")
    found = look(project, Config(sources={"team": SourceSection(directory=str(tmp_path / "team"))}))
    assert [(file.stem, file.source, file.scope) for file in found.files] == [
        ("Z", "project", "local"),
        ("a", "project", "local"),
        ("b", "project", "local"),
        ("c", "user", "global"),
        ("d", "user", "global"),
        ("e", "team", "team"),
    ]
    assert found.problems == ()


def test_the_scan_is_one_level_deep_and_a_package_is_one_entry(project: Path) -> None:
    tools = project / PROJECT
    put(tools / "weather/__init__.py", "y = 2\n")
    put(tools / "weather/other.py")
    put(tools / "plain/module.py")
    for ignored in (
        "_helper.py",
        ".hidden.py",
        ".py",
        "tool.ts",
        "tool.js",
        "tools.json",
        "README.md",
        "__init__.py",
    ):
        put(tools / ignored)
    put(tools / "__pycache__/__init__.py")
    (file,) = look(project).files
    assert (file.stem, file.path, file.content) == ("weather", str(tools / "weather/__init__.py"), b"y = 2\n")
    assert file.directory == str(tools)


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("a.ts", "TypeScript"),
        ("a.mts", "TypeScript"),
        ("a.tsx", "TypeScript"),
        ("a.js", "JavaScript"),
        ("a.mjs", "JavaScript"),
        ("pack/index.ts", "TypeScript"),
    ],
)
def test_a_script_is_a_tool_file_where_an_engine_is_there_and_else_names_what_to_install(
    project: Path, name: str, language: str, tmp_path: Path
) -> None:
    path = put(project / ".opencode/tool" / name)
    problem = only_problem(project)
    assert (problem.path, problem.reason) == (str(path), "unused")
    cause, remedy = problem.message.splitlines()
    assert cause == f"is {language}, which bun or node runs, and there is none"
    assert remedy.startswith("To have it run, install bun (")
    assert "node 24 or later" in remedy
    engine = put(tmp_path / "bin/bun", MAGIC)
    engine.chmod(0o755)
    (file,) = look(project).found
    assert isinstance(file, ToolFile)
    assert (file.path, file.stem, file.content) == (
        str(path),
        name[0] if name[1] == "." else "pack",
        b"x = 1\n",
    )
    assert file.engine is not None
    assert (file.engine.name, file.engine.program) == ("bun", str(engine))


def test_python_files_and_scripts_are_sorted_together_and_each_has_its_own_runtime(
    project: Path, node: Path
) -> None:
    for name in ("b.ts", "a.py", "c/index.js", "d/__init__.py", "_e.ts", "f.d.ts", ".g.js"):
        put(project / PROJECT / name)
    found = look(project)
    assert found.problems == ()
    assert [(file.stem, file.engine is not None) for file in found.files] == [
        ("a", False), ("b", True), ("c", True), ("d", False),
    ]  # fmt: skip


def test_a_source_names_its_engine(project: Path, node: Path) -> None:
    put(project / PROJECT / "a.ts")
    for runtime, count in (("node", 1), ("bun", 0)):
        section = SourceSection(runtime=runtime)  # type: ignore[arg-type]
        found = look(project, Config(sources={"project": section}))
        assert len(found.files) == count
        assert [problem.message.splitlines()[0] for problem in found.problems] == (
            [] if count else ["is TypeScript, which bun runs, and there is none"]
        )


def test_another_engine_is_another_digest_for_scripts_alone(project: Path, node: Path) -> None:
    for name in ("a.py", "b.ts"):
        put(project / PROJECT / name)
    before = [file.digest for file in look(project).files]
    put(node, MAGIC + b"newer")
    after = [file.digest for file in look(project).files]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False]
    node.unlink()
    assert [file.digest for file in look(project).files] == before[:1]


def test_a_script_of_a_project_that_is_a_link_is_not_read(project: Path, node: Path, tmp_path: Path) -> None:
    secret = put(tmp_path / "secret.ts")
    (project / PROJECT / "pack").mkdir(parents=True)
    (project / PROJECT / "a.ts").symlink_to(secret)
    (project / PROJECT / "pack/index.ts").symlink_to(secret)
    (project / PROJECT / "whole").symlink_to(tmp_path)
    found = look(project)
    assert found.files == ()
    assert [problem.reason for problem in found.problems] == ["rejected", "rejected"]


@pytest.mark.parametrize(
    "name", ["a.d.ts", "_helper.ts", ".hidden.ts", "README.md", "tools.json", "data.csv"]
)
def test_metadata_and_helpers_beside_a_tool_are_no_problem(project: Path, name: str) -> None:
    put(project / PROJECT / name)
    put(project / PROJECT / "t.py")
    assert look(project).problems == ()


@pytest.mark.parametrize("names", [["README.md"], ["tools.json"], ["run.sh"], ["_helper.py"], list("abcde")])
def test_a_directory_with_nothing_to_run_says_so(project: Path, names: list[str]) -> None:
    for name in names:
        put(project / PROJECT / name)
    problem = only_problem(project)
    assert (problem.path, problem.reason) == (str(project / PROJECT), "unused")
    more = " and 2 more" if len(names) == 5 else ""
    assert problem.message.startswith(f"has no tool file, only {', '.join(names[:3])}{more}\n")


def test_an_empty_directory_and_what_programs_leave_is_no_problem(project: Path) -> None:
    put(project / PROJECT / ".gitkeep")
    put(project / PROJECT / "__pycache__/x.pyc")
    assert look(project).found == ()


def test_many_files_of_another_language_make_a_bounded_list(project: Path) -> None:
    for number in range(150):
        put(project / PROJECT / f"t{number}.ts")
    put(project / PROJECT / "caf\udce9.ts")
    assert len(look(project).problems) == 100


def test_a_project_in_the_home_directory_is_seen_once(home: Path) -> None:
    put(home / ".atomic/tools/a.py")
    (file,) = look(home).found
    assert isinstance(file, ToolFile)
    assert file.scope == "local"


def test_two_names_of_one_file_are_one_tool_file(project: Path, home: Path) -> None:
    put(home / USER / "a.py")
    (home / USER / "b.py").symlink_to("a.py")
    found = look(project)
    assert [file.stem for file in found.files] == ["a"]
    assert found.problems[0].reason == "rejected"
    assert found.problems[0].message == f"is the same file as {home / USER / 'a.py'}, which is used"


@pytest.fixture
def fifo(project: Path) -> Iterator[Path]:
    path = project / PROJECT / "x.py"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    yield path
    path.unlink()


def test_a_fifo_is_not_opened(project: Path, fifo: Path) -> None:
    assert only_problem(project).message == "is a FIFO, not a file; it was not opened"


def test_a_socket_is_not_opened(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project / PROJECT / "x.py"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(path.parent)  # its whole path may be longer than a socket's may be
        server.bind(path.name)
        assert only_problem(project).message == "is a socket, not a file; it was not opened"
    path.unlink()


def test_a_device_is_not_opened(project: Path, home: Path) -> None:
    path = home / USER / "x.py"
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/zero")
    assert only_problem(project).message == "is a device, not a file; it was not opened"


def test_a_link_to_nothing_is_a_problem(project: Path, home: Path) -> None:
    path = home / USER / "x.py"
    path.parent.mkdir(parents=True)
    path.symlink_to("nowhere.py")
    assert only_problem(project).message == "the link points to nothing; fix or remove it"


def test_a_loop_of_links_is_a_problem(project: Path, home: Path) -> None:
    path = home / USER / "x.py"
    path.parent.mkdir(parents=True)
    path.symlink_to("x.py")
    (path.parent / "y").symlink_to("y")
    assert only_problem(project).message.startswith("Too many levels of symbolic links")


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        (b"x = 1\ny = '\0'\n", "is binary, not source code: it has a NUL byte", 2),
        (b"# Gr\xfc\xdfe\n", "is not UTF-8; save it as such, or declare its encoding", 1),
        (
            b"#" * (FILE_BYTES_MAX + 1),
            "too large: more than 1 MiB; a tool file is source code, keep data beside it",
            0,
        ),
    ],
)
def test_what_is_no_source_code_is_a_problem(project: Path, content: bytes, message: str, line: int) -> None:
    put(project / PROJECT / "x.py", content)
    problem = only_problem(project)
    assert (problem.reason, problem.message, problem.line) == ("broken", message, line)
    assert problem.path == str(project / PROJECT / "x.py")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xef\xbb\xbfx = 1\n",
        b"# coding: latin-1\n# Gr\xfc\xdfe\n",
        b"#!/x\n# -*- coding: cp1252 -*-\n\x80",
    ],
)
def test_source_code_in_a_declared_encoding_is_read(project: Path, content: bytes) -> None:
    put(project / PROJECT / "x.py", content)
    assert [file.content for file in look(project).files] == [content]


def test_a_name_that_is_not_utf_8_is_a_problem_that_can_be_shown(project: Path) -> None:
    put(project / PROJECT / "ok.py")
    with open(os.path.join(os.fsencode(project / PROJECT), b"\xff.py"), "wb"):
        pass
    problem = only_problem(project)
    assert problem.message == "its name is not UTF-8; rename it"
    assert problem.path.encode().endswith("\ufffd.py".encode())


def unreadable(path: Path) -> None:
    path.chmod(0)
    if os.access(path, os.R_OK):
        path.chmod(0o755)
        pytest.skip("this user may read everything")


def test_an_unreadable_file_takes_no_other_with_it(project: Path) -> None:
    put(project / PROJECT / "ok.py")
    unreadable(put(project / PROJECT / "x.py"))
    assert only_problem(project).message == "Permission denied; make the file readable, or remove it"
    assert [file.stem for file in look(project).files] == ["ok"]


def test_an_unreadable_directory_is_a_problem(project: Path) -> None:
    put(project / ".atomic/tools/ok.py")
    put(project / PROJECT / "x.py")
    unreadable(project / PROJECT)
    found = look(project)
    (project / PROJECT).chmod(0o755)
    assert [file.stem for file in found.files] == ["ok"]
    assert found.problems[0].message == "Permission denied; make the directory readable, or remove it"


def test_more_files_than_the_bound_are_a_problem(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "FILES_MAX", 2)
    for name in "abc":
        put(project / PROJECT / f"{name}.py")
    found = look(project)
    assert [file.stem for file in found.files] == ["a", "b"]
    assert found.problems[0].message == "3 tool files; only the first 2 are used"


def test_all_contents_together_have_a_bound(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "CONTENT_BYTES_MAX", 10)
    put(project / PROJECT / "a.py", "x = 1\n")
    put(project / ".atomic/tools/b.py", "y = 12\n")
    found = look(project)
    assert [file.stem for file in found.files] == ["a"]
    assert found.problems[0].message.startswith("too large together")


def digest(project: Path, stem: str = "a", config: Config | None = None) -> str:
    return next(file.digest for file in look(project, config).files if file.stem == stem)


def test_the_digest_changes_with_every_file_below_and_nothing_else(project: Path) -> None:
    tools = project / PROJECT
    put(tools / "a.py")
    put(tools / "b.py")
    put(tools / "_helper.py")
    put(tools / "lib/deep/data.json")
    seen = [digest(project)]
    assert digest(project, "b") not in seen
    for path in ("a.py", "b.py", "_helper.py", "lib/deep/data.json", "lib/new.txt"):
        put(tools / path, f"changed = {len(seen)}\n")
        assert digest(project) not in seen
        seen.append(digest(project))
    (tools / "lib/new.txt").rename(tools / "lib/other.txt")
    assert digest(project) not in seen
    same = digest(project)
    put(tools / "__pycache__/a.cpython-311.pyc")
    put(tools / ".git/index")
    put(project / "README.md")
    os.utime(tools / "a.py", (1, 1))
    assert digest(project) == same
    python = Config(sources={"project": SourceSection(python=".venv/bin/python")})
    assert digest(project, config=python) != same


def test_the_digest_covers_a_file_behind_a_link_of_the_user(
    project: Path, home: Path, tmp_path: Path
) -> None:
    target = put(tmp_path / "elsewhere/pack/__init__.py")
    (home / USER).mkdir(parents=True)
    (home / USER / "pack").symlink_to(target.parent)
    before = digest(project, "pack")
    put(target, "x = 2\n")
    assert digest(project, "pack") != before


def test_beyond_its_budget_the_digest_goes_by_size_and_times(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "BYTES_MAX", 20)
    put(project / PROJECT / "a.py")
    data = put(project / PROJECT / "data.bin", b"1" * 30)
    os.utime(data, (1, 1))
    before = digest(project)
    assert digest(project) == before
    put(project / PROJECT / "new.bin").rename(data)
    data.write_bytes(b"2" * 30)
    os.utime(data, (1, 1))
    assert digest(project) != before, "the inode and the time of the last change cannot be set back"


def uncovered(project: Path) -> str:
    (file,) = look(project).files
    return file.uncovered


def test_what_the_digest_does_not_cover_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = project / PROJECT
    put(tools / "a.py")
    put(tools / "__pycache__/a.cpython-311.pyc")
    assert uncovered(project) == ""
    (tools / "_link.py").symlink_to("a.py")
    assert uncovered(project) == f"{tools}/_link.py is a link"
    (tools / "_link.py").unlink()
    deep = "/".join(["_d"] * (digests.DEPTH_MAX + 1))
    put(tools / deep / "x.py")
    assert uncovered(project).endswith(f"_d is more than {digests.DEPTH_MAX} directories deep")
    shutil.rmtree(tools / "_d")
    put(tools / "_lib/.git/x.py")
    assert uncovered(project) == f"{tools}/_lib/.git is not looked at"
    shutil.rmtree(tools / "_lib")
    monkeypatch.setattr(digests, "ENTRIES_MAX", 2)
    put(tools / "_b.py")
    assert uncovered(project) == f"{tools} has more than 2 entries"
    shutil.rmtree(tools / "__pycache__")
    assert uncovered(project) == ""
    (tools / "_b.py").unlink()
    put(tools / "_lib/c.py")
    assert uncovered(project) == ""
    put(tools / "_lib/d.py")
    assert uncovered(project) == "there are more than 2 files"


@pytest.mark.parametrize("link", [".toolcell", ".toolcell/tools"])
def test_a_tools_directory_of_a_project_that_is_a_link_is_not_read(
    project: Path, tmp_path: Path, link: str
) -> None:
    target = tmp_path / "elsewhere"
    put(target / ("tools/a.py" if link == ".toolcell" else "a.py"))
    (project / link).parent.mkdir(exist_ok=True)
    (project / link).symlink_to(target)
    found = look(project)
    assert not found.files
    problem = next(it for it in found.problems if not it.path.endswith("config.toml"))
    assert (problem.path, problem.reason) == (str(project / PROJECT), "rejected")
    assert problem.message.startswith("is a link, or is below one. ")
    assert not look(project).files


def test_a_project_above_a_link_is_read_no_more(project: Path, tmp_path: Path) -> None:
    """As where a tool renames a directory above the session's own and puts a link there."""
    put(project / "deep/work" / PROJECT / "a.py")
    (project / "deep").rename(tmp_path / "was")
    (project / "deep").symlink_to(tmp_path / "was")
    assert not look(project / "deep/work").files


@pytest.mark.parametrize("name", ["a.py", "pack", "real/__init__.py"])
def test_a_linked_tool_of_a_project_is_rejected(project: Path, tmp_path: Path, name: str) -> None:
    target = put(tmp_path / "elsewhere/__init__.py")
    (project / PROJECT / name).parent.mkdir(parents=True)
    (project / PROJECT / name).symlink_to(target.parent if name == "pack" else target)
    assert only_problem(project).reason == "rejected"
    assert not look(project).files


def test_a_tools_directory_of_the_user_may_be_a_link(project: Path, home: Path, tmp_path: Path) -> None:
    put(tmp_path / "dotfiles/tools/a.py")
    (home / USER).parent.mkdir(parents=True)
    (home / USER).symlink_to(tmp_path / "dotfiles/tools")
    (file,) = look(project).files
    assert (file.directory, file.path) == (
        str(tmp_path / "dotfiles/tools"),
        str(tmp_path / "dotfiles/tools/a.py"),
    )


def test_an_interpreter_is_found_from_its_source(project: Path, tmp_path: Path, home: Path) -> None:
    config = Config(
        sources={
            "project": SourceSection(python=".venv/bin/python", programs=("bin",)),
            "team": SourceSection(directory="/team", python="../venv/bin/python"),
            "mine": SourceSection(directory="/mine", python="~/venv/bin/python"),
        }
    )
    assert sources_of(config, str(project)) == (
        Source(
            "project",
            "local",
            tuple(
                str(project / place)
                for place in (
                    PROJECT,
                    ".atomic/tools",
                    ".opencode/tool",
                    ".opencode/tools",
                    ".omp/tools",
                    ".claude/tools",
                    ".codex/tools",
                )
            ),
            str(project / ".venv/bin/python"),
            (str(project / "bin"),),
            plugins=(str(project / ".toolcell/plugins"),),
            beside=str(project / ".mcp.json"),
        ),
        Source(
            "user",
            "global",
            tuple(
                str(home / place)
                for place in (
                    ".config/toolcell/tools",
                    ".atomic/tools",
                    ".config/opencode/tool",
                    ".config/opencode/tools",
                    ".omp/agent/tools",
                    ".claude/tools",
                    ".codex/tools",
                )
            ),
            plugins=(str(home / ".config/toolcell/plugins"), str(home / ".config/aynd/tools")),
        ),
        Source("team", "team", ("/team",), "/venv/bin/python", safe=()),
        Source("mine", "mine", ("/mine",), str(home / "venv/bin/python"), safe=()),
    )


@pytest.mark.parametrize(
    ("sections", "order"),
    [
        ({}, ["project", "user", "team"]),
        ({"team": {"priority": 3}}, ["project", "team", "user"]),
        ({"team": {"pinned": True}}, ["team", "project", "user"]),
        ({"user": {"priority": 5}}, ["user", "project", "team"]),
        ({"team": {"pinned": True}, "user": {"pinned": True}}, ["user", "team", "project"]),
        ({"team": {"priority": 4}}, ["project", "team", "user"]),
    ],
)
def test_sources_come_by_priority_and_pinned_ones_first(
    project: Path, sections: dict[str, dict[str, Any]], order: list[str]
) -> None:
    named: dict[str, dict[str, Any]] = {
        **sections,
        "team": {"directory": "/team", **sections.get("team", {})},
    }
    config = Config(sources={name: SourceSection.model_validate(said) for name, said in named.items()})
    assert [source.name for source in sources_of(config, str(project))] == order


# The project above


def test_the_tools_of_the_nearest_project_upwards_are_found(project: Path) -> None:
    put(project / PROJECT / "t.py")
    deep = project / "a/b"
    deep.mkdir(parents=True)
    assert [file.path for file in look(deep).files] == [str(project / PROJECT / "t.py")]
    put(project / "a" / ".atomic/tools/u.py")
    assert [file.stem for file in look(deep).files] == ["u"], "the nearest one alone"
    put(project / ".toolcell/config.toml", "network = 7\n")
    assert [problem.path for problem in look(project).problems] == [str(project / ".toolcell/config.toml")]


def test_the_search_ends_at_a_worktree_and_below_the_home_directory(project: Path, home: Path) -> None:
    put(project / PROJECT / "t.py")
    (project / "sub" / "x").mkdir(parents=True)
    assert project_above(str(project / "sub/x")) == str(project)
    put(project / "sub/.git", "gitdir: ../.git/modules/sub\n")
    assert project_above(str(project / "sub/x")) == str(project / "sub/x")
    put(home / PROJECT / "t.py")
    (home / "work").mkdir()
    assert project_above(str(home / "work")) == str(home / "work")
    assert project_above(str(home)) == str(home)


def test_what_another_user_may_have_made_above_is_nobodys_project(project: Path) -> None:
    below = project / "mine/deep"
    below.mkdir(parents=True)
    put(project / PROJECT / "t.py")
    for mode in (0o777, 0o1777):
        project.chmod(mode)
        assert project_above(str(below)) == str(below)
        assert project_above(str(below), (str(project),)) == str(project)
    project.chmod(0o755)
    assert project_above(str(below)) == str(project)


def test_a_place_for_tools_that_is_a_link_makes_no_project(project: Path, tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "tools" / "t.py")
    below = project / "below"
    below.mkdir()
    (project / ".toolcell").symlink_to(tmp_path / "elsewhere")
    assert project_above(str(below)) == str(below)
    assert project_above(str(project / "gone")) == str(project / "gone")


@pytest.mark.parametrize(
    ("path", "stem"),
    [
        ("/t/a.py", "a"),
        ("/t/a.b.ts", "a.b"),
        ("/t/a.json", "a"),
        ("/t/a/__init__.py", "a"),
        ("/t/a/index.mjs", "a"),
        ("/t/index.py", "index"),
        ("/t/a.txt", "a.txt"),
        ("/t/a", "a"),
    ],
)
def test_a_tool_file_is_called_without_its_ending(path: str, stem: str) -> None:
    assert tool_stem(path) == stem


def test_the_code_of_a_project_has_the_same_digest_on_each_machine_and_another_one_when_it_changes(
    tmp_path: Path,
) -> None:
    def code(name: str, helper: str, asks: str = "") -> set[str]:
        put(tmp_path / name / PROJECT / "t.py")
        put(tmp_path / name / PROJECT / "helper/__init__.py", helper)
        if asks:
            put(tmp_path / name / ".toolcell/config.toml", asks)
        return {file.code for file in look(tmp_path / name).files if file.source == "project"}

    known = code("one", "y = 1")
    assert known == code("two", "y = 1")
    assert known != code("three", "y = 2")
    assert known != code("four", "y = 1", "network = true")
    (other,) = code("five", "y = 1")
    assert len(other) == 40
    assert look(tmp_path / "one").files[0].digest != look(tmp_path / "two").files[0].digest
