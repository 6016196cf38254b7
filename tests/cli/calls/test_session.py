"""`toolcell call --session NAME`: a session that stays between commands, and what can be wrong with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import SECONDS_MAX, Project, user_daemon
from tests.daemons import RunningDaemon

COUNTER = """
import os
from toolcell import tool

calls = 0

@tool(isolation="session")
def count(mark: str = "") -> int:
    global calls
    calls += 1
    if mark:
        open(mark, "w").close()
        open(mark).close()
    return calls
"""


@pytest.fixture
def started(project: Project) -> Iterator[RunningDaemon]:
    """A daemon that ends with the sessions that a test has left in it."""
    project.tool("count", COUNTER)
    daemon = user_daemon(project.home)
    daemon.launch()
    yield daemon
    if daemon.process is not None:
        daemon.stop()


def kept_file(project: Project) -> Path:
    (path,) = (Path(project.socket).parent / "sessions").iterdir()
    return path


@pytest.mark.slow
def test_a_session_keeps_what_a_tool_remembers_between_commands(
    project: Project, started: RunningDaemon
) -> None:
    assert [project.run("call", "count").out for _ in range(2)] == [
        "1\n",
        "1\n",
    ]  # each has a session of its own
    first = project.run("call", "count", "--session", "a")
    assert (first.out, first.err) == ("1\n", "a: a new session; it is kept for 30 minutes after each call.\n")
    second = project.run("call", "count", "--session", "a")
    assert (second.out, second.err) == ("2\n", "")
    assert project.run("call", "count", "--session", "b").out == "1\n"
    assert project.run("call", "unknown", "--session", "a").code == 3  # a failure does not end it
    assert project.run("call", "count", "nonsense=1", "--session", "a").code == 2
    assert project.run("call", "count", "--session", "a", "--json").json("call")["content"][0]["text"] == "3"
    (project.home / "elsewhere").mkdir()
    assert project.run("call", "count", "--session", "a", "-C", str(project.home / "elsewhere")).code == 3
    agents = [session["agent"] for session in project.run("sessions", "--json").json("sessions")["sessions"]]
    assert agents == ["cli"] * 3
    assert started.status().sessions == 3


@pytest.mark.slow
def test_an_edit_that_breaks_the_file_is_told_beside_the_result_of_the_older_version(
    project: Project, started: RunningDaemon
) -> None:
    file = project.tool("noted", "from toolcell import tool\n\n@tool\ndef noted() -> int:\n    return 1\n")
    assert project.run("call", "noted", "--session", "a").out == "1\n"
    file.write_text("def noted(:\n")
    done = project.run("call", "noted", "--session", "a")
    note = (
        "The last working version of .toolcell/tools/noted.py was run, as what was saved since cannot be "
        "loaded: line 1: invalid syntax."
    )
    assert (done.code, done.out, done.err) == (0, "1\n", f"noted: {note}\n")
    assert project.run("call", "noted", "--session", "a", "--json").json("call")["notes"] == [note]


@pytest.mark.slow
def test_an_edit_of_the_tool_has_an_effect_in_the_next_call_of_the_session(
    project: Project, started: RunningDaemon
) -> None:
    assert project.run("call", "count", "--session", "a").out == "1\n"
    project.tool("count", COUNTER.replace("return calls", "return -calls"))
    assert project.run("call", "count", "--session", "a").out == "-1\n"
    assert started.status().sessions == 1


@pytest.mark.slow
def test_after_a_restart_of_the_daemon_the_session_is_a_new_one_and_says_so(
    project: Project, started: RunningDaemon
) -> None:
    assert project.run("call", "count", "--session", "a").out == "1\n"
    started.stop()
    started.launch()
    again = project.run("call", "count", "--session", "a")
    assert (again.out, "a: a new session;" in again.err) == ("1\n", True)


@pytest.mark.slow
def test_without_a_daemon_it_starts_the_users(project: Project) -> None:
    project.tool("count", COUNTER)
    try:
        assert [project.run("call", "count", "--session", "a").out for _ in range(2)] == ["1\n", "2\n"]
    finally:
        assert project.run("stop").code == 0


@pytest.mark.slow
def test_one_command_at_a_time_uses_a_session(project: Project, started: RunningDaemon) -> None:
    mark = project.directory / "mark"
    os.mkfifo(mark)
    with project.started("call", "count", "mark=mark", "--session", "a") as first:
        mark.open().close()
        second = project.run("call", "count", "--session", "a", "--json")
        assert (second.code, second.json("error")["error"]["code"]) == (3, "session_in_use")
        assert project.run("call", "count", "--session", "b").out == "1\n"
        mark.open("w").close()
        assert first.communicate(timeout=SECONDS_MAX)[0] == "1\n"
    mark.unlink()
    assert project.run("call", "count", "--session", "a").out == "2\n"
    assert started.status().calls == 0


@pytest.mark.slow
def test_a_command_that_is_killed_leaves_the_session(project: Project, started: RunningDaemon) -> None:
    mark = project.directory / "mark"
    os.mkfifo(mark)
    with project.started("call", "count", "mark=mark", "--session", "a") as first:
        mark.open().close()
        first.send_signal(signal.SIGKILL)
        first.wait(SECONDS_MAX)
    mark.open("w").close()  # the call goes on without its client
    mark.unlink()
    assert project.run("call", "count", "--session", "a").out == "2\n"
    assert started.status().sessions == 1


@pytest.mark.parametrize(
    "name", ["", "..", "../a", "a/b", "a\nb", "-a", "a" * 65, "ä", "\x1b[2J", ".hidden", "a b"]
)
def test_what_is_no_name_is_refused(project: Project, name: str) -> None:
    done = project.run("call", "count", f"--session={name}")
    assert (done.code, done.out) == (2, "")
    assert not (Path(project.socket).parent / "sessions").exists()


def test_a_session_does_not_go_with_a_daemon_that_ends_with_the_command(project: Project) -> None:
    project.tool("count", COUNTER)
    for words in (("count", "--private"), (".toolcell/tools/count.py",)):
        done = project.run("call", *words, "--session", "a")
        assert (done.code, "--session" in done.err) == (2, True)


@pytest.mark.slow
def test_what_stands_in_the_place_of_a_token_is_no_token(project: Project, started: RunningDaemon) -> None:
    assert project.run("call", "count", "--session", "a").out == "1\n"
    path = kept_file(project)
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text()
    for text in ("", "junk", "\x00" * 2000, "s-1.\n.", "s-unknown.secret", "é.é"):
        path.write_text(text)
        assert project.run("call", "count", "--session", "a").out == "1\n", text
    path.write_text(token.rpartition(".")[0] + ".wrong")
    done = project.run("call", "count", "--session", "a", "--json")
    assert done.code == 69
    assert "not the token" in done.json("error")["error"]["message"]
    path.unlink()
    path.symlink_to(project.home / "target")
    assert project.run("call", "count", "--session", "a").code == 69
    assert not (project.home / "target").exists()
    path.unlink()
    path.mkdir()
    assert project.run("call", "count", "--session", "a").code == 69
    path.rmdir()
    os.mkfifo(path)
    assert project.run("call", "count", "--session", "a").code == 69
    assert started.process is not None
    assert started.process.poll() is None
