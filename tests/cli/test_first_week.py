"""The first week of an author: what fails says what is next, and that is what is typed.

Every command that grants something is taken out of the message of the step before; no other knowledge is used.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Done, Project
from tests.daemons import RunningDaemon, checked

HOG = '''
from toolcell import tool

@tool(file_size="3GiB")
def hog() -> int:
    """Write a large file, all of it a hole."""
    import tempfile
    with tempfile.TemporaryFile() as file:
        return file.truncate(%d * 2**30)
'''
IMPORTS = '''
import leftpad
from toolcell import tool

@tool
def %s() -> str:
    """Name the package."""
    return leftpad.NAME
'''
SCRIPT = f'# /// script\n# requires-python = ">=3.0"\n# dependencies = ["%s"]\n# ///\n{IMPORTS}'
COMMAND = re.compile(r"toolcell (?:trust|config set) .*")


@pytest.fixture
def daemon(project: Project) -> Iterator[Project]:
    """A project whose user's daemon runs, with the state that a private one has, too: files by their path run in one."""
    words = ["toolcell.cli", "serve", "--idle-exit", "7200"]
    running = RunningDaemon(
        project.home, command=words, options=(), config="", environment=project.environment
    )
    with checked(running):
        running.launch()
        yield project


class Week:
    """What is typed in a project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def follow(self, failed: Done) -> list[str]:
        """Type the commands that a message names, in their order; return them."""
        assert failed.code != 0
        commands: list[str] = COMMAND.findall(failed.err)
        assert commands, failed.err
        for command in commands:
            _, *words = shlex.split(command)
            done = self.project.run(*words, *(["--yes"] if words[0] == "trust" else []))
            assert done.code == 0, (command, done)
        return commands

    def package(self, environment: Path) -> None:
        """Install a package as `uv pip install` would."""
        (place,) = environment.glob("lib/python3*/site-packages")
        (place / "leftpad.py").write_text(f"NAME = {environment.name!r}\n")

    def environment(self, name: str) -> Path:
        """Make an environment."""
        import venv

        place = self.project.directory / name
        venv.create(place, symlinks=True)
        return place

    def says(self, *words: str) -> str:
        done = self.project.run("call", *words, "--quiet")
        assert done.code == 0, done
        return done.out.strip()

    def waits(self, tool: str, clause: str, command: str) -> Done:
        """Every command says the same of what waits: why, and what to type."""
        failed = self.project.run("call", tool)
        assert (failed.code != 0, clause in failed.err, command in failed.err) == (True, True, True), failed
        for words in (["check"], ["trust", "--show"]):
            done = self.project.run(*words)
            assert clause in " ".join(f"{done.out} {done.err}".split()), (words, done)
        checked = self.project.run("check")
        assert command in checked.out + checked.err
        return failed


@pytest.mark.slow
@pytest.mark.timeout(600)  # forty commands
def test_the_first_week_needs_no_knowledge_that_is_not_in_the_message_before(daemon: Project) -> None:
    week, place = Week(daemon), daemon.directory
    trust = f"toolcell trust {place}"

    # A decorator's limit, in a new project: held, and every surface says so.
    daemon.tool("hog", HOG % 2)
    failed = daemon.run_program("", "call", "hog")
    assert "Its file_size of 3GiB is held until it is trusted." in failed.err
    for words in (["tools", "hog"], ["check"], ["explain", "hog"], ["trust", "--show"]):
        done = daemon.run(*words)
        assert "file_size 3GiB" in " ".join(f"{done.out} {done.err}".split()), (words, done)
    assert week.follow(failed) == [trust]
    assert week.says("hog") == str(2 * 2**30)

    # It needs more than its file says.
    daemon.tool("hog", HOG % 5)
    failed = daemon.run_program("", "call", "hog")
    assert week.follow(failed) == ["toolcell config set tool.hog.file_size 6GiB"]
    assert week.says("hog") == str(5 * 2**30)

    # A file that cannot be loaded when the project is trusted; then its package is installed.
    environment = week.environment(".venv")
    daemon.tool("a", IMPORTS % "a")
    week.follow(daemon.run("call", "a"))
    assert daemon.run("call", "a").code != 0
    week.package(environment)
    failed = week.waits(
        "a", f"a is new since {place} was trusted: .toolcell/tools/a.py could not be loaded then", trust
    )
    assert week.follow(failed) == [trust]
    assert week.says("a") == ".venv"
    assert "is new since" not in daemon.run("check").err

    # A second file of the trusted project.
    daemon.tool("b", IMPORTS % "b")
    failed = week.waits("b", f".toolcell/tools/b.py is new since {place} was trusted", trust)
    week.follow(failed)
    assert week.says("b") == ".venv"

    # A file by its path, beside the directory of tools and below it.
    for name in ("outside.py", "sub/inside.py"):
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(IMPORTS % path.stem)
        failed = daemon.run("call", f"./{name}")
        assert f"{name} is new since {place} was trusted" in failed.err
        assert f"toolcell trust {path}" in daemon.run("check", f"./{name}").out
        assert week.follow(failed) == [f"toolcell trust {path}"]
        assert week.says(f"./{name}") == ".venv"
    assert week.says("b") == ".venv"

    # A script block: its packages are shown before they are granted.
    daemon.tool("s", SCRIPT % ("no-such-package-anywhere", "s"))
    failed = week.waits("s", f".toolcell/tools/s.py is new since {place} was trusted", trust)
    assert "Held until it is trusted: the packages no-such-package-anywhere." in failed.err
    assert "the packages no-such-package-anywhere" in " ".join(
        daemon.run("trust", "--show").out.split()
    ).replace("s.py: ", "")
    (daemon.tools / "s.py").unlink()

    # Another interpreter for the project.
    other = week.environment("other")
    week.package(other)
    assert daemon.run("config", "set", "source.project.python", f"{other}/bin/python").code == 0
    failed = week.waits(
        "b", f"{place} was trusted with another interpreter; now it is {other}/bin/python", trust
    )
    week.follow(failed)
    assert week.says("b") == "other"

    # The project is moved.
    moved = place.with_name("moved elsewhere")
    shutil.move(place, moved)
    daemon.directory = moved
    daemon.tools = moved / ".toolcell" / "tools"
    assert daemon.run("config", "set", "source.project.python", ".venv/bin/python").code == 0
    failed = daemon.run("call", "b")
    assert f"{moved} is not trusted" in failed.err
    assert week.follow(failed) == [f"toolcell trust '{moved}'"]
    assert week.says("b") == ".venv"


@pytest.mark.slow
@pytest.mark.timeout(600)  # the same
def test_a_hostile_project_gains_nothing_by_a_file_that_is_trusted_by_its_path(daemon: Project) -> None:
    week, place = Week(daemon), daemon.directory
    week.package(week.environment(".venv"))
    daemon.tool("known", IMPORTS % "known")
    assert daemon.run("trust", "--yes").code == 0
    (place / "outside.py").write_text(IMPORTS % "outside")
    assert daemon.run("trust", "--yes", "./outside.py").code == 0

    # A trust by path covers that file alone, and takes nothing else along.
    daemon.tool("evil", IMPORTS % "evil")
    (place / "beside.py").write_text(IMPORTS % "beside")
    assert daemon.run("call", "evil").code != 0
    assert daemon.run("call", "./beside.py").code != 0
    assert daemon.run("trust", "--yes", "./outside.py").code == 0
    assert daemon.run("call", "evil").code != 0
    assert week.says("known") == ".venv"

    # Another tool in it is asked about, as in any other file.
    (place / "outside.py").write_text(IMPORTS % "outside" + (IMPORTS % "second"))
    failed = daemon.run("call", "./outside.py:second")
    assert failed.code != 0

    # Nor does a file of another directory stand for that of the project: its own project counts.
    strange = place.with_name("strange")
    strange.mkdir()
    (strange / "outside.py").write_text(IMPORTS % "outside")
    failed = daemon.run("call", str(strange / "outside.py"))
    assert f"{strange} is not trusted" in failed.err or "No module named" in failed.err
    assert failed.code != 0

    # A pin is not widened by one file.
    assert daemon.run("trust", "--yes", "--digest").code == 0
    refused = daemon.run("trust", "--yes", "./outside.py")
    assert (refused.code, "cannot be added to" in refused.err) == (3, True)
    assert daemon.run("call", "./outside.py").code != 0
    daemon.tool("known", IMPORTS.replace("Name", "Steal") % "known")
    assert f"has other code than {place} was trusted with" in daemon.run("call", "known").err


@pytest.mark.slow
def test_what_is_set_keeps_the_comments_and_what_cannot_be_used_is_not_written(project: Project) -> None:
    path = project.home / ".config" / "toolcell" / "config.toml"
    path.parent.mkdir(parents=True)
    before = '# mine\n[defaults]  # here\ntimeout = "2m" # two\n\n[tool.hog] # the tool\nmemory = "300MiB"\n'
    path.write_text(before)
    path.chmod(0o640)
    done = project.run("config", "set", "tool.hog.memory", "1GiB", "--json").json("config set")
    assert done == {"file": str(path), "line": 'tool.hog.memory = "1GiB"', "reloaded": False}
    assert path.read_text() == before.replace("300MiB", "1GiB")
    assert path.stat().st_mode & 0o777 == 0o640
    for key, value, told in (
        ("tool.hog.memry", "1GiB", ':7: tool.hog.memry: unknown key; did you mean "memory"?'),
        ("tool.hog.memory", "much", ':6: tool.hog.memory: "much" is no size'),
        ("defaults", "3", "should be a table"),
        ("tool.hog.memory.more", "3", "is no key"),
        ("a b", "3", "is no key"),
        ("x = 1\ny", "3", "is no key"),
    ):
        refused = project.run("config", "set", key, value)
        assert refused.code == 1, (key, refused)
        assert told in " ".join(refused.err.split()), refused
    assert path.read_text() == before.replace("300MiB", "1GiB")
    for key, value in (('tool."git_*".env', '["A", "B"]'), ("trust", "ask"), ("tool.x.network", "true")):
        assert project.run("config", "set", key, value).code == 0
    assert "# mine" in path.read_text()
    assert project.run("config", "check").code == 0


@pytest.mark.slow
def test_what_is_set_is_read_by_the_daemon_that_runs(daemon: Project) -> None:
    daemon.tool("hog", HOG % 1)
    assert daemon.run("config", "set", "tool.hog.timeout", "7s", "--json").json("config set")["reloaded"]
    assert "7s" in daemon.run("tools", "hog").out
