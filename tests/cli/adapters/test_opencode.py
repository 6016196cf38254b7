"""`toolcell opencode`: the file that it writes among OpenCode's plugins, and what it leaves alone."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from toolcell.adapters.opencode import entry
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli.adapters import opencode

SECONDS_MAX = 30
ROOT = Path(__file__).parents[3]
BESIDE = Path(sys.executable).parent
WITH, WITHOUT = f"{BESIDE}:/usr/bin:/bin", "/usr/bin:/bin"
"""A PATH that leads to the `toolcell` of these tests, and one that does not."""
USERS = ".config/opencode/plugins/toolcell.js"
PROJECTS = "project/.opencode/plugins/toolcell.js"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a project, and a configuration of OpenCode that has comments."""
    (tmp_path / "project").mkdir()
    (tmp_path / ".config" / "opencode").mkdir(parents=True)
    (tmp_path / ".config" / "opencode" / "opencode.jsonc").write_text('{ /* mine */ "plugin": [], }\n')
    return tmp_path


def run(home: Path, *words: str, path: str = WITH, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolcell.cli", "opencode", *words],
        env={"PATH": path, "HOME": str(home), **environment},
        cwd=home / "project",
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def files(home: Path) -> list[str]:
    found = (str(path.relative_to(home)) for path in home.rglob("*") if not path.is_dir())
    return sorted(found)


def command_of(file: Path) -> list[str]:
    """The command in the file's options."""
    (line,) = [line for line in file.read_text().splitlines() if line.startswith("const options = ")]
    return list(json.loads(line.removeprefix("const options = "))["command"])


@pytest.mark.slow
@pytest.mark.parametrize(("words", "file"), [((), USERS), (("--project",), PROJECTS)])
def test_one_file_is_written_once_and_deleted_again(home: Path, words: tuple[str, ...], file: str) -> None:
    before = files(home)
    done = [run(home, "install", *words, *more) for more in ((), (), ("--remove",), ("--remove",))]
    assert [one.returncode for one in done] == [0] * 4
    assert [one.stdout.split()[0] for one in done] == ["Wrote", str(home / file), "Deleted", "There"]
    assert files(home) == before
    run(home, "install", *words)
    assert files(home) == sorted([*before, file])
    shown = stat.S_IMODE((home / file).stat().st_mode)
    assert shown == (0o644 if words else 0o600)


@pytest.mark.slow
def test_a_file_names_no_path_of_the_machine_unless_it_has_to(home: Path) -> None:
    (home / "bin").mkdir()
    (home / "bin" / "toolcell").symlink_to(BESIDE / "toolcell")
    linked = f"{home}/bin:/usr/bin:/bin"  # as pipx and uv do it
    for words, path, file in (
        ((), linked, USERS),
        (("--project",), WITH, PROJECTS),
        (("--project",), WITHOUT, PROJECTS),
    ):
        run(home, "install", *words, path=path)
        assert command_of(home / file) == ["toolcell"]
        assert not any(str(place) in (home / file).read_text() for place in (home, BESIDE, ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("path", [WITH, WITHOUT], ids=["an activated environment", "no PATH to it"])
def test_a_users_file_names_the_path_where_the_next_shell_may_not_find_the_command(
    home: Path, path: str
) -> None:
    run(home, "install", path=path)
    assert command_of(home / USERS) == [str(BESIDE / "toolcell")]


def test_another_socket_and_another_configuration_directory_are_used(home: Path) -> None:
    done = run(home, "--socket", "d.sock", "--json", "install", XDG_CONFIG_HOME=str(home / "elsewhere"))
    file = home / "elsewhere" / "opencode" / "plugins" / "toolcell.js"
    assert json.loads(done.stdout) == {"file": str(file), "changed": True}
    assert f'"socket": "{home}/project/d.sock"' in file.read_text()


def test_an_address_of_another_machine_is_no_path(home: Path) -> None:
    run(home, "--socket", "cluster:repo-a:?gpu=1", "install")
    assert '"socket": "cluster:repo-a:?gpu=1"' in (home / USERS).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--remove",)])
def test_a_file_of_another_program_stays(home: Path, words: tuple[str, ...]) -> None:
    run(home, "install")
    (home / USERS).write_text("export default {}\n")
    done = run(home, "install", *words)
    assert done.returncode == Exit.USAGE
    assert "it was written by another program" in done.stderr
    assert (home / USERS).read_text() == "export default {}\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--remove",)])
def test_a_link_is_neither_followed_nor_replaced(home: Path, words: tuple[str, ...]) -> None:
    run(home, "install")
    target = home / "target.js"
    (home / USERS).rename(target)
    (home / USERS).symlink_to(target)
    before = target.read_text()
    done = run(home, "install", *words)
    assert done.returncode == Exit.USAGE
    assert "stays as it is" in done.stderr
    assert ((home / USERS).is_symlink(), target.read_text()) == (True, before)


def test_a_directory_that_others_can_write_into_gets_no_file(home: Path) -> None:
    place = home / USERS
    place.parent.mkdir()
    place.parent.chmod(0o777)
    done = run(home, "install")
    assert done.returncode == Exit.USAGE
    assert "others can write into" in done.stderr
    assert not place.exists()


def test_a_link_in_place_of_a_projects_directory_is_not_followed(home: Path) -> None:
    (home / "project" / ".opencode").mkdir()
    (home / "project" / ".opencode" / "plugins").symlink_to(home)
    assert run(home, "install", "--project").returncode == Exit.USAGE
    assert not (home / "toolcell.js").exists()


@pytest.mark.slow
def test_other_files_of_the_directory_stay_when_it_is_deleted(home: Path) -> None:
    run(home, "install")
    other = home / USERS.replace("toolcell", "other")
    other.touch()
    run(home, "install", "--remove")
    assert (other.exists(), (home / USERS).exists()) == (True, False)


def test_the_path_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert opencode.path(CommandContext()) is Exit.OK
    assert opencode.path(CommandContext(as_json=True)) is Exit.OK
    plain, encoded = capsys.readouterr().out.splitlines()
    assert plain == json.loads(encoded)["path"] == str(entry.PLUGIN)
    assert entry.PLUGIN.exists()


@pytest.mark.slow
def test_the_plugin_is_found_without_what_only_the_bridge_needs() -> None:
    code = "import sys, toolcell.adapters.opencode.entry; sys.exit('httpx2' in sys.modules or 'grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("linked", [".opencode", ".opencode/plugins"])
def test_a_link_on_the_way_to_the_file_of_a_project_is_not_followed(home: Path, linked: str) -> None:
    """A repository comes with links; this one leads to the user's own plugins."""
    assert run(home, "install").returncode == 0
    theirs = home / ".config" / "opencode"
    (home / "project" / linked).parent.mkdir(exist_ok=True)
    (home / "project" / linked).symlink_to(theirs if linked == ".opencode" else theirs / "plugins")
    kept = (home / USERS).read_text()
    for words in (("--project",), ("--project", "--remove")):
        done = run(home, "install", *words)
        assert done.returncode == Exit.USAGE, done
        assert "is a link" in done.stderr
        assert (home / USERS).read_text() == kept


@pytest.mark.slow
def test_no_directory_is_made_behind_a_link_of_a_project(home: Path) -> None:
    (home / "project" / ".opencode").symlink_to(home / ".config")
    assert run(home, "install", "--project").returncode == Exit.USAGE
    assert not (home / ".config" / "plugins").exists()
