"""`[source.NAME] files`: tool files that the configuration names one by one."""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path

import pytest

from toolcelld.catalog.discovery.scan import Scan, scan
from toolcelld.catalog.discovery.sources import sources_of
from toolcelld.catalog.hooks import find_hooks
from toolcelld.catalog.problem import Problem
from toolcelld.config.load import Config, load
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.schema import DaemonSection, HookSection, SourceSection


def scanned(project: Path, section: SourceSection) -> Scan:
    return scan(sources_of(Config(sources={"team": section}), str(project)), str(project))


def test_listed_files_are_used_and_not_those_beside_them(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.json"):
        (tmp_path / name).write_text("")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    listed = tuple(str(tmp_path / name) for name in ("c.json", "pack", "a.py"))
    found = scanned(tmp_path, SourceSection(files=listed, python="/usr/bin/python3"))
    assert [(Path(file.path).name, file.source, file.scope, file.python) for file in found.files] == [
        ("c.json", "team", "team", "/usr/bin/python3"),
        ("__init__.py", "team", "team", "/usr/bin/python3"),
        ("a.py", "team", "team", "/usr/bin/python3"),
    ]
    assert found.problems == ()


def test_a_file_that_is_found_twice_is_used_once(tmp_path: Path) -> None:
    tools = tmp_path / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "a.py").write_text("")
    (tmp_path / "other.py").symlink_to(tools / "a.py")
    (tools / "pack").mkdir()
    (tools / "pack" / "__init__.py").write_text("")
    twice = (str(tools / "a.py"), str(tools / "a.py"), str(tmp_path / "other.py"), str(tools / "pack"))
    found = scanned(tmp_path, SourceSection(files=twice))
    # The project's comes first, so that a list makes no project's file the user's own.
    assert [(file.path, file.source) for file in found.files] == [
        (str(tools / "a.py"), "project"),
        (str(tools / "pack" / "__init__.py"), "project"),
    ]
    assert {problem.path for problem in found.problems} <= {str(tools / "a.py"), str(tmp_path / "other.py")}
    assert all(f"same file as {tools}/a.py" in problem.message for problem in found.problems)


@pytest.mark.parametrize("name", ["gone.py", "gone/a.py", "readme.md", "run.sh", "_helper.py"])
def test_what_is_listed_and_is_no_tool_file_is_a_problem(tmp_path: Path, name: str) -> None:
    if not name.startswith("gone"):
        (tmp_path / name).write_text("raise SystemExit\n")
    found = scanned(tmp_path, SourceSection(files=(str(tmp_path / name),)))
    assert found.files == ()
    (problem,) = found.problems
    assert problem.path == str(tmp_path / name)
    assert "is listed in [source.team] of the configuration" in problem.message
    assert "[source.team]" in problem.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[source.team]\nfiles = ["a.py"]\n', "should be an absolute path"),
        ('[source.team]\nfiles = "/a.py"\n', "should be a list of tool files"),
        ('[source.user]\nfiles = ["/a.py"]\n', "cannot be listed in user"),
        ('[source.project]\nfiles = ["/a.py"]\n', "cannot be listed in project"),
        ("[source.team]\nfiles = []\n", "has no directory"),
        (f"[source.team]\nfiles = {['/a.py'] * 65}\n", "64"),
    ],
)
def test_a_mistake_in_the_list_is_named(tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load([str(config)])


def test_a_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / "config.toml"
    config.write_text('[source.team]\nfiles = ["~/a.py"]\n')
    assert load([str(config)]).sources["team"].files == (str(tmp_path / "a.py"),)


def hurt(place: Path, fault: str) -> str:
    if fault == "mode":
        place.chmod(0o777)
        return f"{place} can be written by every user"
    os.chown(place, 4242, 4242)
    return f"{place} belongs to the user 4242"


@pytest.mark.parametrize("fault", ["mode", "owner"])
@pytest.mark.parametrize(
    ("kind", "which"),
    [
        *itertools.product(["directory", "files"], ["team/tools", "team", "team/tools/a.py"]),
        *itertools.product(["directory", "files"], ["team/tools/lib", "team/tools/lib/helper.py", "team/tools/beside.py"]),
    ],
)  # fmt: skip
def test_what_other_users_can_change_is_not_used_and_said(
    tmp_path: Path, fault: str, which: str, kind: str
) -> None:
    if fault == "owner" and os.geteuid() != 0:
        pytest.skip("only root makes files of other users")
    tools = tmp_path / "team" / "tools"
    (tools / "lib").mkdir(parents=True)
    (tools / "a.py").write_text("")
    (tools / "lib" / "helper.py").write_text("")
    (tools / "beside.py").write_text("from toolcell import tool\n")
    section = (
        SourceSection(directory=str(tools))
        if kind == "directory"
        else SourceSection(files=(str(tools / "a.py"),))
    )
    files = len(scanned(tmp_path, section).files)
    assert files
    says = hurt(tmp_path / which, fault)
    found = scanned(tmp_path, section)
    assert found.files == ()
    (problem,) = found.problems
    assert (problem.reason, problem.path) == (
        "rejected",
        str(tools if kind == "directory" else tools / "a.py"),
    )
    assert problem.message.startswith(f"is not used, as {says}: ")
    (command,) = re.findall(r"toolcell config set daemon.safe_directories '(.*)'", problem.message)
    safe = tuple(json.loads(command))
    config = Config(sources={"team": section}, daemon=DaemonSection(safe_directories=safe))
    assert len(scan(sources_of(config, str(tmp_path)), str(tmp_path)).files) == files, "as the message says"


@pytest.mark.parametrize(
    ("link", "which"),
    [("b.py", "place"), ("b.py", "place/b.py"), ("lib", "place"), ("lib", "place/lib/helper.py")],
)
def test_where_a_link_of_a_directory_leads_is_looked_at_too(tmp_path: Path, which: str, link: str) -> None:
    tools, elsewhere = tmp_path / "tools", tmp_path / "place"
    tools.mkdir()
    (elsewhere / "lib").mkdir(parents=True)
    (elsewhere / "b.py").write_text("")
    (elsewhere / "lib" / "helper.py").write_text("")
    (tools / "a.py").write_text("")
    (tools / link).symlink_to(elsewhere / link)
    (tools / "loop").symlink_to(tools)
    (tools / "nowhere").symlink_to(tmp_path / "nothing")
    section = SourceSection(directory=str(tools))
    assert scanned(tmp_path, section).files
    says = hurt(tmp_path / which, "mode")
    found = scanned(tmp_path, section)
    assert found.files == ()
    assert found.problems[0].message.startswith(f"is not used, as {says}: ")


def test_what_no_tool_file_imports_is_not_looked_at(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    (tools / "__pycache__").mkdir(parents=True)
    (tools / "a.py").write_text("")
    (tools / "__pycache__").chmod(0o777)
    assert len(scanned(tmp_path, SourceSection(directory=str(tools))).files) == 1


def test_what_a_single_file_cannot_import_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "Downloads").mkdir()
    (tmp_path / "Downloads" / "letter.pdf").write_text("")
    for place in ("notes.txt", "Downloads", "Downloads/letter.pdf"):
        (tmp_path / place).chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "Downloads")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing")
    assert len(scanned(tmp_path, SourceSection(files=(str(tmp_path / "a.py"),))).files) == 1


def test_a_hook_is_not_used_where_other_users_can_change_what_it_imports(tmp_path: Path) -> None:
    place = tmp_path / "hooks"
    (place / "lib").mkdir(parents=True)
    (place / "lib" / "rules.py").write_text("")
    (place / "guard.py").write_text("")
    config = Config(hooks={"guard": HookSection(file=str(place / "guard.py"))})
    (place / "lib" / "rules.py").chmod(0o666)
    ((_, _, found),) = find_hooks(config)
    assert isinstance(found, Problem)
    assert f"{place / 'lib' / 'rules.py'} can be written by every user" in found.message
    (place / "lib" / "rules.py").chmod(0o644)
    ((_, _, found),) = find_hooks(config)
    assert not isinstance(found, Problem)


def test_a_hook_that_other_users_can_change_is_not_used(tmp_path: Path) -> None:
    place = tmp_path / "hooks"
    place.mkdir()
    (place / "guard.py").write_text("")
    config = Config(hooks={"guard": HookSection(file=str(place / "guard.py"))})
    ((_, _, found),) = find_hooks(config)
    assert not isinstance(found, Problem)
    place.chmod(0o777)
    ((_, _, found),) = find_hooks(config)
    assert isinstance(found, Problem)
    assert f"{place} can be written by every user" in found.message
