"""`toolcell dev`: what a save changes, and the call that is run again."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.cli.conftest import SECONDS_MAX, Project, fits, user_daemon
from tests.daemons import RunningDaemon

from toolcell.cli.authoring.dev import Changes, Snapshot, changes
from toolcell.client import Problem
from toolcell.client.catalog import ToolInfo

GREET = """
from toolcell import tool

@tool
def greet(name: str) -> str:
    return f"Hello {name}!"
"""


class Dev:
    """A running `toolcell dev --json`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def next(self) -> Any:
        """The next object that it prints; what it says of tools is held against the schema."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        value = json.loads(line)
        fits(value, "dev" if value["event"] == "tools" else "event")
        return value

    def tools(self) -> dict[str, Any]:
        """What the next change is, without what is empty."""
        value = self.next()
        assert value["event"] == "tools", value
        return {key: found for key, found in value.items() if found and key not in ("event", "generation")}

    def outcome(self) -> str:
        """The text of the next outcome."""
        value = self.next()
        assert value["event"] == "outcome", value
        return str(value["message"] or value["content"][0]["text"])


@contextmanager
def developing(project: Project, *words: str) -> Generator[Dev]:
    with project.started("dev", *words, "--json") as process:
        yield Dev(process)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS_MAX) == 130
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_each_save_is_told_with_what_it_changed(daemon: Project) -> None:
    daemon.tool("greet", GREET)
    with developing(daemon) as dev:
        assert dev.tools() == {"added": ["greet"]}
        daemon.tool("greet", GREET.replace("Hello", "Goodbye"))
        assert dev.tools() == {"changed": ["greet"]}
        daemon.tool("greet", "def greet(:\n")
        found = dev.tools()
        assert found.keys() == {"broken"}
        assert [(wrong["reason"], wrong["line"]) for wrong in found["broken"]] == [("stale", 1)]
        daemon.tool("greet", "import nobody_has_this\n")
        (wrong,) = dev.tools()["broken"]
        assert wrong["message"].startswith("No module named 'nobody_has_this'")
        path = daemon.tool("greet", GREET)
        assert dev.tools() == {"changed": ["greet"], "mended": [str(path)]}
        daemon.tool("other", GREET.replace("def greet", "def other"))
        assert dev.tools() == {"added": ["other"]}
        (daemon.tools / "greet.py").unlink()
        assert dev.tools() == {"removed": ["greet"]}


@pytest.mark.slow
def test_the_call_is_run_again_on_each_save_and_a_running_one_is_aborted(daemon: Project) -> None:
    daemon.tool("greet", GREET)
    with developing(daemon, "greet", "name=Ann") as dev:
        assert dev.tools() == {"added": ["greet"]}
        assert dev.outcome() == "Hello Ann!"
        daemon.tool("greet", "def greet(:\n")
        assert dev.tools().keys() == {"broken"}  # and the code of before is not called
        daemon.tool("greet", GREET.replace("Hello", "Goodbye"))
        assert dev.tools()["changed"] == ["greet"]
        assert dev.outcome() == "Goodbye Ann!"
        mark = daemon.directory / "mark"
        sleeps = f"open({str(mark)!r}, 'w').close()\n    import time\n    time.sleep(1000)\n    return"
        daemon.tool("greet", GREET.replace("return", sleeps))
        assert dev.tools() == {"changed": ["greet"]}
        while not mark.exists():  # the tool has begun
            assert dev.process.poll() is None
            time.sleep(0.01)
        daemon.tool("greet", GREET)
        assert dev.outcome().startswith("by a change; ")
        assert dev.tools() == {"changed": ["greet"]}
        assert dev.outcome() == "Hello Ann!"
        daemon.tool("greet", GREET.replace("name: str", "name: int"))
        assert dev.tools() == {"changed": ["greet"]}
        assert "1 argument is wrong" in dev.outcome()
        (daemon.tools / "helper.py").write_text("WORD = 1\n")
        assert dev.tools() == {}
        assert "1 argument is wrong" in dev.outcome()


@pytest.mark.slow
def test_a_file_of_its_own_is_watched_without_a_daemon(project: Project) -> None:
    path = project.directory / "greet.py"
    path.write_text(GREET)
    with developing(project, "./greet.py", "name=Ann") as dev:
        assert dev.tools() == {"added": ["greet"]}
        assert dev.outcome() == "Hello Ann!"
        path.write_text(GREET.replace("Hello", "Goodbye"))
        assert dev.tools() == {"changed": ["greet"]}
        assert dev.outcome() == "Goodbye Ann!"


@pytest.mark.slow
def test_on_a_terminal_each_change_is_a_line(daemon: Project) -> None:
    daemon.tool("greet", GREET)
    with daemon.screen("dev", "greet", "name=Ann") as screen:
        screen.until(": 1 tool. ^C ends.\r\n")
        screen.until("Hello Ann!")
        daemon.tool("greet", GREET.replace("name: str", 'name: str = "x"'))
        screen.until(" changed  greet (.toolcell/tools/greet.py): arguments\r\n")
        screen.until("Hello Ann!")
        daemon.tool("greet", "raise ValueError('\x1b[2Jcleared')\n")
        screen.until(" stale    .toolcell/tools/greet.py line 1: ValueError: ")
        screen.until("greet is not called; waiting for a change.")
        screen.type("\x03")
        assert screen.end() == 130
    assert "\x1b[2J" not in screen.text
    assert "Traceback" not in screen.text


@pytest.mark.slow
def test_the_end_of_the_daemon_ends_it_with_a_sentence(project: Project) -> None:
    daemon: RunningDaemon = user_daemon(project.home)
    daemon.launch()
    project.tool("greet", GREET)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with project.started("dev", "greet", "name=Ann") as process:
            assert process.stdout is not None
            while "Hello Ann!" not in process.stdout.readline():
                pass
            daemon.stop(number)
            _, err = process.communicate(timeout=SECONDS_MAX)
        assert (process.returncode, err.splitlines()[-2:]) == (
            69,
            ["toolcell: The daemon has ended.", "  Begin anew: toolcell dev"],
        )
        if number == signal.SIGTERM:
            daemon.launch()


@pytest.mark.parametrize(
    "words",
    [("greet", "nonsense"), ("./none.py",), ("greet", "--timeout", "soon"), ("greet", "--args", "[]")],
)
def test_a_wrong_command_line_ends_it(daemon: Project, words: tuple[str, ...]) -> None:
    done = daemon.run("dev", *words)
    assert (done.code, done.out) == (2, "")


def tool(name: str, path: str = "", **more: Any) -> ToolInfo:
    values: dict[str, Any] = {"description": "", "input_schema": {}, **more}
    return ToolInfo(
        name,
        scope="local",
        path=path or f"{name}.py",
        read_only=False,
        destructive=False,
        idempotent=False,
        network=False,
        **values,
    )


def snapshot(*tools: ToolInfo, problems: tuple[Problem, ...] = (), **files: int) -> Snapshot:
    numbers = {f"{name}.py": (number,) for name, number in files.items()}
    return Snapshot({one.name: one for one in tools}, problems, numbers)


def test_what_differs_between_two_snapshots() -> None:
    wrong = Problem("b.py", "", "broken", "why", 3)
    before = snapshot(tool("a"), tool("gone"), problems=(wrong,), a=1, b=1)
    assert changes(before, before) == Changes()
    assert not changes(before, before)
    now = snapshot(tool("a"), tool("new"), problems=(wrong,), a=2, b=1)
    assert changes(before, now) == Changes(added=("new",), changed=("a",), removed=("gone",))
    assert changes(
        before, snapshot(tool("a", description="x"), tool("gone"), problems=(wrong,), a=1, b=1)
    ) == Changes(changed=("a",))
    saved = snapshot(tool("a"), tool("gone"), problems=(wrong,), a=1, b=2)
    assert changes(before, saved) == Changes(broken=(wrong,))
    assert changes(before, snapshot(tool("a"), tool("gone"), a=1)) == Changes(mended=("b.py",))
    stale = Problem("a.py", "", "stale", "why", 1)
    kept = snapshot(tool("a"), tool("gone"), problems=(wrong, stale), a=2, b=1)
    assert changes(before, kept) == Changes(broken=(stale,))  # what runs is what it was
    assert changes(kept, snapshot(tool("a"), tool("gone"), problems=(wrong,), a=3, b=1)) == Changes(
        changed=("a",), mended=("a.py",)
    )
    moved = snapshot(tool("a", path="c.py"), tool("gone"), problems=(wrong,), c=1, b=1)
    assert changes(before, moved) == Changes(changed=("a",))
