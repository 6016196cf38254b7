"""What works before anything runs: init, version, files of their own, a private daemon."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
from tests.cli.conftest import SECONDS_MAX, Project


@pytest.mark.slow
def test_init_writes_a_tool_that_works_and_never_overwrites(project: Project) -> None:
    done = project.run("init")
    assert done.out == "Wrote .toolcell/tools/hello.py. Call it:\n  toolcell call hello name=World\n"
    assert project.run("call", "hello", "name=World", "times=2").out == "Hello World!\nHello World!\n"
    (project.tools / "hello.py").write_text("mine")
    done = project.run("init", "hello")
    assert done.code == 2
    assert (project.tools / "hello.py").read_text() == "mine"
    made = project.run("init", "elsewhere/count.py", "--json").json("init")
    assert made["command"] == "toolcell call ./elsewhere/count.py name=World"
    assert project.run(*made["command"].split()[1:]).out == "Hello World!\n"
    assert project.run("init", "no-name").code == 2


@pytest.mark.slow
def test_a_private_daemon_leaves_nothing(project: Project) -> None:
    project.run("init")
    before = set(os.listdir(project.home))
    assert project.run("call", "hello", "name=World", "--private").out == "Hello World!\n"
    assert set(os.listdir(project.home)) - before <= {".local"}  # the user's state


@pytest.mark.slow
def test_a_file_of_its_own_runs_where_it_is_and_nothing_beside_it_runs(project: Project) -> None:
    other = project.home / "other"
    other.mkdir()
    (other / "setup.py").write_text("open('ran', 'w')\n")
    (other / "sibling.py").write_text("ANSWER = 42\n")
    (other / "two.py").write_text(
        "import os\n"
        "from sibling import ANSWER\n"
        "from toolcell import tool\n"
        "@tool\n"
        "def one() -> str:\n"
        "    return f'{ANSWER} {__file__} {os.getcwd()}'\n"
        "@tool\n"
        "def other() -> None:\n"
        "    pass\n"
    )
    (project.tools / "two.py").write_text("raise SystemExit('not meant')\n")
    expected = f"42 {other}/two.py {project.directory}\n"
    assert project.run("call", "../other/two.py:one").out == expected
    assert project.run("call", "../other/two.py:two_one").out == expected
    done = project.run("call", "../other/two.py")
    assert done.code == 2
    assert done.err == (
        "toolcell: ../other/two.py has several tools.\n"
        "  Take one of: ../other/two.py:one, ../other/two.py:other\n"
    )
    assert not (project.directory / "ran").exists()
    assert not (other / "ran").exists()


@pytest.mark.slow
def test_leaving_a_private_daemon_at_once_leaves_nothing_either(project: Project) -> None:
    (project.directory / "deaf.py").write_text(
        "import time\n"
        "from toolcell import ToolContext, tool\n"
        "@tool\n"
        "def deaf(context: ToolContext) -> None:\n"
        "    context.progress(1, 2)\n"
        "    while True:\n"
        "        try:\n"
        "            time.sleep(1000)\n"
        "        except BaseException:\n"
        "            pass\n"
    )
    with project.screen("call", "./deaf.py") as screen:
        screen.until("50%")
        screen.type("\x03")
        screen.until("aborting")
        screen.type("\x03")
        assert screen.end() == 130
    deadline = time.monotonic() + SECONDS_MAX
    while private_daemons(project):  # it was left at once, and ends by itself
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [name for name in os.listdir(project.home) if name.startswith("toolcell-")] == []


def private_daemons(project: Project) -> list[int]:
    """The private daemons of the user whose home this is."""
    found: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "--private" in process.cmdline() and process.environ().get("HOME") == str(project.home):
                found.append(process.pid)
    return found


@pytest.mark.parametrize("words", [["version"], ["--help"], ["call", "--help"]])
def test_what_needs_no_daemon_loads_nothing_of_one(project: Project, words: list[str]) -> None:
    program = (
        "import sys\n"
        "from toolcell.cli._command_line.app import app  # what main() calls, which ends the process at once\n"
        "try:\n"
        "    app()\n"
        "except SystemExit as exit:\n"
        "    assert not exit.code, exit.code\n"
        "loaded = {'grpc', 'google.protobuf', 'rich', 'asyncio', 'toolcell.client'} & sys.modules.keys()\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=project.environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_version_is_said_for_people_and_programs(project: Project) -> None:
    said = project.run("version").out
    assert said == f"toolcell {project.run('--json', 'version').json('version')['version']}\n"


@pytest.mark.slow
def test_c_works_as_if_started_there_and_options_stand_everywhere(project: Project) -> None:
    project.run("init")
    for words in (["-C", str(project.directory), "tools"], ["tools", "-C", str(project.directory)]):
        assert "hello (local)" in project.run(*words).out
    assert project.run("-C", "nowhere", "tools").code == 2
    assert project.run("tools", "-C", "nowhere", "--json").json("error")["error"]["code"] == "usage"


@pytest.mark.slow
@pytest.mark.parametrize("descriptors", [64, 96, 127])
def test_too_few_descriptors_are_said_with_their_number_and_no_sandbox_is_offered(
    project: Project, descriptors: int
) -> None:
    project.run("init")
    command = f'ulimit -n {descriptors}; exec "$@"'
    words = [sys.executable, "-P", "-m", "toolcell.cli", "call", "hello", "name=World", "--private"]
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", *words],
        cwd=project.directory, env=project.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert f"it may have {descriptors}, and needs 128 or more (ulimit -n)" in done.stderr
    assert "config set" not in done.stderr
