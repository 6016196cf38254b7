"""Tools that installed packages bring: entry points, and manifests of plugins."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from toolcelld.catalog.discovery.packaged import PackagedTool, packaged_tools
from toolcelld.catalog.discovery.scan import scan
from toolcelld.catalog.discovery.sources import sources_of
from toolcelld.config.load import Config

OUTSIDE = "leads out of the package"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of packages that Python looks in."""
    place = tmp_path / "site"
    (place / "my_tools").mkdir(parents=True)
    (place / "my_tools" / "__init__.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    return place


def distribution(place: Path, *lines: str) -> None:
    info = place / "my_tools-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[toolcell.tools]\n" + "\n".join(lines) + "\n")


def plugin(home: Path, name: str, manifest: object, *files: str) -> Path:
    package = home / ".omp" / "plugins" / "node_modules" / name
    package.mkdir(parents=True)
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    (package / "package.json").write_text(text)
    for file in files:
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text("tools = []\n")
    return package


def test_modules_of_entry_points_are_found_and_not_imported(home: Path, installed: Path) -> None:
    distribution(installed, "weather = my_tools.weather", "pack = my_tools.pack:tools")
    (installed / "my_tools" / "weather.py").write_text("raise SystemExit\n")
    (installed / "my_tools" / "pack").mkdir()
    (installed / "my_tools" / "pack" / "__init__.py").write_text("")
    found = packaged_tools(())
    assert {Path(tool.path).relative_to(installed).as_posix() for tool in found} == {
        "my_tools/weather.py",
        "my_tools/pack",
    }
    assert {tool.origin for tool in found} == {"the entry points of my-tools"}
    files = scan(sources_of(Config(), str(home.parent)), str(home.parent)).files
    assert {(file.stem, file.source, file.scope) for file in files} >= {
        ("weather", "user", "global"),
        ("pack", "user", "global"),
    }


def test_what_is_installed_later_is_found(home: Path, installed: Path) -> None:
    assert packaged_tools(()) == ()
    (installed / "my_tools" / "weather.py").write_text("")
    distribution(installed, "weather = my_tools.weather")
    assert [Path(tool.path).name for tool in packaged_tools(())] == ["weather.py"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("weather", "is no module of a package"),
        ("my_tools.gone", "there is no module my_tools.gone"),
        ("..etc.passwd", "is no module of a package"),
        ("my_tools./../../x", "is no module of a package"),
        ("my_tools.we ather", "is no module of a package"),
    ],
)
def test_an_entry_point_that_names_no_module_is_a_problem(
    home: Path, installed: Path, value: str, says: str
) -> None:
    distribution(installed, f"one = {value}")
    (problem,) = scan(sources_of(Config(), str(home.parent)), str(home.parent)).problems
    assert problem.path == "one"
    assert problem.message.startswith("the entry points of my-tools: ")
    assert says in problem.message


def test_plugins_name_files_and_directories(home: Path) -> None:
    directory = plugin(home, "a", {"name": "a", "omp": {"tools": "./tools"}}, "tools/one.py", "other.py")
    file = plugin(
        home, "@scope/b", {"pi": {"tools": ["two.py", "./more/three.py"]}}, "two.py", "more/three.py"
    )
    plugin(home, "c", {"omp": {"commands": "x"}}, "four.py")
    plugin(home, "d", {"name": "no plugin"}, "five.py")
    assert {tool.path for tool in packaged_tools(("omp",))} == {
        str(directory / "tools"),
        str(file / "two.py"),
        str(file / "more" / "three.py"),
    }
    seen = scan(sources_of(Config(), str(home.parent)), str(home.parent))
    assert {file.stem for file in seen.files} == {"one", "two", "three"}
    assert seen.problems == ()
    assert packaged_tools(()) == ()


def test_plugins_are_looked_for_only_where_that_system_is_used(home: Path) -> None:
    plugin(home, "a", {"omp": {"tools": "a.py"}}, "a.py")
    daemon = Config().daemon.model_copy(update={"flavours": ("opencode",)})
    assert scan(sources_of(Config(daemon=daemon), str(home.parent)), str(home.parent)).files == ()


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        (" " * 300_000, "cannot be read"),
        ("\xff\x00", "cannot be read"),
        ({"omp": {"tools": 7}}, "a path, or a list of paths"),
        ({"omp": {"tools": []}}, "a path, or a list of paths"),
        ({"omp": {"tools": [""]}}, "a path, or a list of paths"),
        ({"omp": {"tools": ["a.py", None]}}, "a path, or a list of paths"),
        ({"omp": {"tools": "gone.py"}}, "there is no 'gone.py'"),
        ({"omp": {"tools": "../b/b.py"}}, OUTSIDE),
        ({"omp": {"tools": "../../../../secret.py"}}, OUTSIDE),
        ({"omp": {"tools": "/etc/passwd"}}, OUTSIDE),
        ({"omp": {"tools": "link.py"}}, OUTSIDE),
        ({"omp": {"tools": "inner/../../b/b.py"}}, OUTSIDE),
        ({"omp": {"tools": "a\0.py"}}, OUTSIDE),
    ],
)
def test_a_manifest_leads_nowhere_else(home: Path, manifest: object, says: str) -> None:
    (home.parent / "secret.py").write_text("")
    package = plugin(home, "a", manifest)
    plugin(home, "b", {}, "b.py")
    (package / "link.py").symlink_to(home.parent / "secret.py")
    (found,) = packaged_tools(("omp",))
    assert says in found.problem
    seen = scan(sources_of(Config(), str(home.parent)), str(home.parent))
    assert seen.files == ()
    assert [problem.path for problem in seen.problems] == [str(package / "package.json")]


@pytest.mark.parametrize("manifest", ["null", "[]", "7", '{"omp": []}', '{"omp": null}', '{"pi": {}}'])
def test_a_manifest_of_something_else_brings_nothing(home: Path, manifest: str) -> None:
    plugin(home, "a", manifest)
    assert packaged_tools(("omp",)) == ()


def test_a_package_may_be_a_link_of_the_users_own(home: Path, tmp_path: Path) -> None:
    real = tmp_path / "development"
    real.mkdir()
    (real / "package.json").write_text('{"omp": {"tools": "a.py"}}')
    (real / "a.py").write_text("")
    modules = home / ".omp" / "plugins" / "node_modules"
    modules.mkdir(parents=True)
    (modules / "a").symlink_to(real)
    manifest = str(modules / "a" / "package.json")
    assert packaged_tools(("omp",)) == (PackagedTool(str(real / "a.py"), manifest),)
