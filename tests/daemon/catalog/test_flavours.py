"""Directory flavours: where other systems keep their tools, and whose project they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcelld.catalog.discovery.scan import scan
from toolcelld.catalog.discovery.sources import ToolFile, project_above, project_directory, sources_of
from toolcelld.config.load import Config
from toolcelld.config.protected import ALWAYS
from toolcelld.config.schema import DaemonSection
from toolcelld.flavours import FLAVOURS, OTHER_FLAVOURS, flavour_of, makes_project, project_of

PROJECT_PLACES = [(flavour.name, place) for flavour in FLAVOURS for place in flavour.project]
CONFIG_PLACES = [(flavour.name, place) for flavour in FLAVOURS for place in flavour.config]
HOME_PLACES = [(flavour.name, place) for flavour in FLAVOURS for place in flavour.home]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x = 1\n")


def look(directory: Path, config: Config | None = None) -> tuple[ToolFile, ...]:
    return scan(sources_of(config or Config(), str(directory)), str(directory)).files


def without(*names: str) -> Config:
    left = tuple(name for name in OTHER_FLAVOURS if name not in names)
    return Config(daemon=DaemonSection.model_construct(flavours=left))


@pytest.mark.parametrize(("name", "place"), PROJECT_PLACES)
def test_a_projects_place_is_found_from_below_with_its_flavour(project: Path, name: str, place: str) -> None:
    put(project / place / "lint.py")
    (project / "sub/deep").mkdir(parents=True)
    (file,) = look(project / "sub/deep")
    assert (file.path, file.scope, file.stem) == (str(project / place / "lint.py"), "local", "lint")
    assert file.flavour == name
    assert project_directory(file) == str(project)


@pytest.mark.parametrize(("name", "place"), HOME_PLACES)
def test_a_users_place_below_home_is_found_everywhere(
    project: Path, home: Path, name: str, place: str
) -> None:
    put(home / place / "lint.py")
    (file,) = look(project)
    assert (file.path, file.scope, file.flavour) == (str(home / place / "lint.py"), "global", name)


@pytest.mark.parametrize(("name", "place"), CONFIG_PLACES)
def test_a_users_place_in_the_configuration_is_found_everywhere(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    put(tmp_path / "xdg" / place / "lint.py")
    (file,) = look(project)
    assert (file.scope, file.flavour) == ("global", name)


def test_the_search_ends_at_the_worktree(project: Path) -> None:
    put(project / ".claude/tools/t.py")
    put(project / "sub/.git/HEAD")
    (project / "sub/deep").mkdir()
    assert look(project / "sub/deep") == ()


def test_an_agents_directory_without_tools_hides_no_project_above(project: Path) -> None:
    put(project / ".toolcell/tools/t.py")
    (project / "sub/.claude/agents").mkdir(parents=True)
    assert [file.stem for file in look(project / "sub")] == ["t"]
    put(project / "sub/.claude/tools/u.py")
    assert [file.stem for file in look(project / "sub")] == ["u"]


def test_every_level_of_a_worktree_is_looked_in_the_nearest_first(project: Path) -> None:
    put(project / ".git/HEAD")
    put(project / ".opencode/tools/lint.py")
    put(project / ".toolcell/tools/top.py")
    put(project / "sub/.claude/tools/lint.py")
    put(project / "sub/deep/.toolcell/tools/own.py")
    put(project.parent / ".toolcell/tools/outside.py")
    (project / "sub/deep/er").mkdir()
    found = look(project / "sub/deep/er")
    assert [str(Path(file.path).relative_to(project)) for file in found] == [
        "sub/deep/.toolcell/tools/own.py",
        "sub/.claude/tools/lint.py",
        ".toolcell/tools/top.py",
        ".opencode/tools/lint.py",
    ]
    assert {file.source for file in found} == {"project"}
    assert [project_directory(file) for file in found] == [
        str(project / "sub/deep"), str(project / "sub"), str(project), str(project),
    ]  # fmt: skip
    assert project_above(str(project / "sub/deep/er")) == str(project / "sub/deep")


def test_each_level_asks_for_itself(project: Path) -> None:
    put(project / ".git/HEAD")
    put(project / ".toolcell/tools/top.py")
    put(project / "sub/.toolcell/tools/own.py")
    (project / ".toolcell/config.toml").write_text('requires = ["attrs"]\n')
    (project / "sub/.toolcell/config.toml").write_text('requires = ["idna"]\n')
    assert [(file.stem, file.requires) for file in look(project / "sub")] == [
        ("own", ("idna",)),
        ("top", ("attrs",)),
    ]
    (project / "sub/.toolcell/config.toml").unlink()
    assert [(file.stem, file.requires) for file in look(project / "sub")] == [
        ("own", ()),
        ("top", ("attrs",)),
    ]


def test_the_levels_end_where_another_user_can_write(project: Path) -> None:
    put(project / ".git/HEAD")
    put(project / ".toolcell/tools/top.py")
    put(project / "sub/.toolcell/tools/own.py")
    project.chmod(0o777)
    assert [file.stem for file in look(project / "sub")] == ["own"]


def test_a_flavour_that_is_not_named_is_not_looked_in(project: Path, home: Path) -> None:
    put(project / ".toolcell/tools/t.py")
    put(project / "sub/.claude/tools/u.py")
    put(home / ".claude/tools/v.py")
    put(home / ".codex/tools/w.py")
    assert [file.stem for file in look(project / "sub", without("claude"))] == ["t", "w"]


@pytest.mark.parametrize("link", [".opencode", ".opencode/tools"])
def test_a_place_that_is_or_is_below_a_link_makes_no_project(
    project: Path, tmp_path: Path, link: str
) -> None:
    put(tmp_path / "elsewhere/tools/t.py")
    below = project / "below"
    below.mkdir()
    (project / link).parent.mkdir(exist_ok=True)
    target = tmp_path / "elsewhere" if link == ".opencode" else tmp_path / "elsewhere/tools"
    (project / link).symlink_to(target)
    assert not makes_project(str(project))
    assert project_above(str(below)) == str(below)
    assert look(project) == (), "a project's tools are read through no link"


def test_every_place_of_a_project_is_always_protected() -> None:
    for _, place in PROJECT_PLACES:
        assert any(place == name or place.startswith(f"{name}/") for name in ALWAYS), place


def test_a_path_is_no_place_for_its_end_alone() -> None:
    assert flavour_of("/p/x.claude/tools") is None
    assert project_of("/p/x.claude/tools") is None
    assert project_of("/.claude/tools") == "/"
    assert project_of("/p/.claude/tools/below") is None
