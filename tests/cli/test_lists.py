"""What there is and what is wrong: tools, check, calls, sessions, ps, logs; and abort, reload, restart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import SECONDS_MAX, Project, fits

ADD = '''
from toolcell import tool

@tool(timeout=60)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print(f"adding {a} and {b}")
    return a + b
'''
SLOW = '''
import time
from toolcell import tool

@tool
def slow(mark: str) -> None:
    """Sleep."""
    open(mark, "w").close()
    time.sleep(1000)
'''


@pytest.mark.slow
def test_tools_are_listed_in_the_words_of_the_specification(daemon: Project) -> None:
    daemon.tool("add", ADD)
    daemon.tool("plot", "import os\n\nimport nobody_has_this\n")
    everywhere = daemon.home / ".config/toolcell/tools"
    everywhere.mkdir(parents=True)
    (everywhere / "lint.py").write_text(ADD.replace("add", "lint"))
    done = daemon.run("tools")
    assert done.out == (
        "Custom Tools:\n"
        "  add (local) — Add two numbers.\n"
        "  lint (global) — Add two numbers.\n"
        "Problems:\n"
        "  .toolcell/tools/plot.py line 3: No module named 'nobody_has_this'\n"
    )
    listing = daemon.run("tools", "--json").json("tools")
    assert [(tool["name"], tool["scope"]) for tool in listing["tools"]] == [
        ("add", "local"),
        ("lint", "global"),
    ]
    assert listing["directory"] == str(daemon.directory)
    assert (listing["problems"][0]["reason"], listing["problems"][0]["tool"]) == ("broken", None)


def test_one_tool_is_shown_with_its_schema_and_where_its_settings_come_from(daemon: Project) -> None:
    daemon.tool("add", ADD)
    done = daemon.run("tools", "add")
    assert '"a": {\n      "type": "integer"' in done.out
    assert re.search(r"\ntimeout  +1m  +file\n", done.out)
    shown = daemon.run("tools", "add", "--json").json("tools NAME")
    assert {"key": "timeout", "value": "1m", "origin": "file"} in shown["settings"]
    assert daemon.run("tools", "unknown").code == 3


@pytest.mark.slow
def test_check_reports_each_file_and_exits_with_1(daemon: Project) -> None:
    daemon.tool("add", ADD)
    assert daemon.run("check").code == 0
    daemon.tool("plot", "import os\n\nimport nobody_has_this\n")
    daemon.tool("lint", "def f(:\n")
    done = daemon.run("check")
    assert done.code == 1
    assert done.out.splitlines() == [
        ".toolcell/tools/add.py   add",
        ".toolcell/tools/lint.py  broken, line 1: invalid syntax",
        "    def f(:",
        "          ^",
        ".toolcell/tools/plot.py  broken, line 3: No module named 'nobody_has_this'",
        (
            "  It ran with Toolcell's own Python. To have the package installed, begin the file with "
            "the package's name, which may differ from the module's:"
        ),
        "    # /// script",
        '    # dependencies = ["nobody_has_this"]',
        "    # ///",
        f"  Then trust the project: toolcell trust {daemon.directory}",
        "  Or name an environment: toolcell config set source.project.python /path/of/its/bin/python",
    ]
    checked = daemon.run("check", "--json").json("check")
    assert not checked["ok"]
    assert [file["tools"] for file in checked["files"]] == [["add"], [], []]


def test_check_says_which_descriptions_an_agent_cuts(daemon: Project) -> None:
    text = f'from toolcell import tool\n\n@tool\ndef long():\n    """{"x" * 2049}"""\n'
    daemon.tool("long", text)
    done = daemon.run("check")
    assert done.code == 0
    assert "long: its description has 2049 bytes, and Claude Code shows a model the first 2048." in done.err
    assert daemon.run("check", "--quiet").err == ""


@pytest.mark.slow
def test_check_of_a_file_looks_at_no_other(project: Project) -> None:
    other = project.home / "other"
    other.mkdir()
    (other / "good.py").write_text(ADD)
    (other / "setup.py").write_text("open('ran', 'w')\n")
    (other / "none.py").write_text("x = 1\n")
    done = project.run("check", "../other/good.py")
    assert (done.code, done.out) == (0, f"{other}/good.py  good_add\n")
    done = project.run("check", "../other/none.py", "--json")
    assert (done.code, done.json("check")["files"][0]["problems"][0]["reason"]) == (1, "unused")
    assert not (project.directory / "ran").exists()
    assert not (other / "ran").exists()
    assert project.run("check", "../other/unknown.py").code == 2


@pytest.mark.slow
def test_a_call_is_listed_told_and_logged(own_daemon: Project) -> None:
    own_daemon.tool("add", ADD)
    assert own_daemon.run("call", "add", "a=1", "b=2").out == "3\n"
    heading, line = own_daemon.run("calls").out.splitlines()
    assert heading.split() == ["CALL", "TOOL", "STATE", "ACCEPTED", "RAN", "AGENT", "DIRECTORY"]
    call_id, tool, state = line.split()[:3]
    assert (tool, state) == ("add", "ok")
    (call,) = own_daemon.run("calls", "--json").json("calls")["calls"]
    assert (call["call_id"], call["state"], call["outcome"]["kind"]) == (call_id, "ended", "ok")
    story = own_daemon.run("calls", call_id[:8], "--json").json("calls ID")["story"]
    assert story[0]["text"] == "accepted"
    assert "accepted" in own_daemon.run("calls", call_id).out
    assert own_daemon.run("calls", "c-unknown").code == 3
    (worker,) = own_daemon.run("ps", "--json").json("ps")["workers"]
    assert (worker["state"], worker["isolation"], worker["call_id"]) == ("idle", "worker", None)
    assert own_daemon.run("ps").out.splitlines()[1].split()[1] == "idle"
    (printed,) = own_daemon.run("logs", "add", "--json").json("logs")["logs"]
    assert (printed["text"], printed["call_id"]) == ("adding 1 and 2\n", call_id)
    assert own_daemon.run("logs", call_id).out.endswith(" add: adding 1 and 2\n")
    assert own_daemon.run("restart", "--json").json("restart") == {"retired": 1, "retiring": 0}
    assert own_daemon.run("restart").out == "0 workers retired.\n"


@pytest.mark.slow
def test_a_running_call_is_seen_and_aborted_by_somebody_else(daemon: Project) -> None:
    daemon.tool("slow", SLOW)
    mark = daemon.directory / "mark"
    os.mkfifo(mark)
    command = [sys.executable, "-m", "toolcell.cli", "call", "slow", "mark=mark"]
    with subprocess.Popen(
        command, cwd=daemon.directory, env=daemon.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        mark.open().close()  # returns when the tool has opened it as well
        mark.unlink()
        (session,) = daemon.run("sessions", "--json").json("sessions")["sessions"]
        assert (session["agent"], session["state"], session["calls"]) == ("cli", "open", 1)
        assert daemon.run("sessions").out.splitlines()[1].split()[:3] == [
            session["session_id"],
            "cli",
            "open",
        ]
        story = daemon.run("sessions", session["session_id"], "--json").json("sessions ID")
        call_id = story["calls"][0]["call_id"]
        assert story["calls"][0]["outcome"] is None
        shown = daemon.run("sessions", session["session_id"]).out
        assert "\ncalls      1 waiting or running, 0 ended\n" in shown
        assert "_" not in shown.partition("\n\n")[0].replace(str(daemon.directory), "")
        assert " busy " in daemon.run("ps").out
        assert daemon.run("reload", "--json").json("reload")["tools"] == 1
        assert daemon.run("reload").out == "1 directory, 1 tool.\n"
        assert daemon.run("abort", call_id, "--json").json("abort") == {
            "calls": [{"call_id": call_id, "running": True}]
        }
        _, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 130
    assert err.startswith("slow: aborted: by an operator; it stopped by itself ")
    assert daemon.run("abort", "c-unknown").code == 3
    assert daemon.run("abort", "--tool", "slow").out == "No such call waits or runs.\n"
    assert daemon.run("abort", "--all", "--json").json("abort") == {"calls": []}
    for unclear in (
        (),
        ("--all", "c-1"),
        ("--all", "--tool", "slow"),
        ("--session", "s", "c-1"),
        ("--reason", "x"),
    ):
        done = daemon.run("abort", *unclear)
        assert (done.code, done.err.splitlines()[-1]) == (
            2,
            "  Write ids of calls, or --tool and --session, or --all.",
        )
    assert daemon.run("sessions", "s-unknown", "--json").json("error")["error"]["code"] == "unknown_session"


def test_logs_follow_what_comes(daemon: Project) -> None:
    daemon.tool("add", ADD)
    command = [sys.executable, "-m", "toolcell.cli", "logs", "-f", "--json"]
    with subprocess.Popen(
        command, cwd=daemon.directory, env=daemon.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines: list[dict[str, Any]] = [json.loads(process.stdout.readline())]  # it is there: the daemon's own
        daemon.run("call", "add", "a=1", "b=2")
        while lines[-1]["tool"] != "add":
            lines.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS_MAX)
    for line in lines:
        fits(line, "logs -f")
    assert lines[-1]["text"] == "adding 1 and 2\n"
    assert process.returncode == 130


@pytest.mark.parametrize(
    "words", [["calls"], ["sessions"], ["ps"], ["logs"], ["abort", "c-1"], ["reload"], ["restart"]]
)
def test_without_a_daemon_the_command_says_what_to_do(project: Project, words: list[str]) -> None:
    done = project.run(*words, "--json")
    assert done.code == 69
    error = done.json("error")["error"]
    assert (error["code"], error["remedy"]) == ("unavailable", "Start the daemon: toolcell serve")
    assert done.err.endswith("\n  Start the daemon: toolcell serve\n")


def test_a_socket_that_nobody_serves_any_more_is_no_daemon(daemon: Project, project: Project) -> None:
    daemon.tool("add", ADD)
    left = Path(daemon.socket).with_name("left.sock")
    os.link(daemon.socket, left)
    stale = daemon.home / "stale"
    stale.mkdir(mode=0o700)
    left.rename(stale / "daemon.sock")
    for token in ("agent.token", "operator.token"):
        (stale / token).write_bytes(Path(daemon.socket).with_name(token).read_bytes())
    assert daemon.run("ps", "--socket", str(stale / "daemon.sock")).code == 0
    (stale / "daemon.sock").unlink()
    assert daemon.run("ps", "--socket", str(stale / "daemon.sock")).code == 69
    assert daemon.run("call", "add", "a=1", "b=1", "--socket", str(stale / "daemon.sock")).code == 69


@pytest.mark.slow
def test_check_tells_what_was_not_granted_and_not_used(daemon: Project) -> None:
    daemon.tool("add", ADD)
    assert daemon.run("check").err == ""
    daemon.tool("asks", ADD.replace("timeout=60", 'network=["api.example.org"]').replace("add", "asks"))
    (daemon.directory / ".toolcell/config.toml").write_text('programs = ["bin"]\n')
    checked = daemon.run("check")
    told = " ".join(checked.err.split())
    assert checked.code == 0
    assert told == (
        f"{daemon.directory} is not trusted. Held until it is trusted: add: the programs of {daemon.directory}/bin; "
        f"asks: the network to api.example.org, the programs of {daemon.directory}/bin. "
        f"To see what is asked for, and to grant it: toolcell trust {daemon.directory}"
    )
    assert daemon.run("check", "--quiet").err == ""
    assert daemon.run("trust", "--yes").code == 0
    assert daemon.run("check").err == ""
