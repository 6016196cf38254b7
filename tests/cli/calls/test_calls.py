"""`toolcell calls`: what a call was given and returned, refused calls, and what a crash says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.cli.conftest import Project

TALK = """
import os
import sys
from toolcell import Image, tool

@tool
def says(*, text: str, password: str = "", more: dict = {}) -> str:
    return "returned " + text

@tool
def picture() -> list:
    return ["before", Image(data=b"\\x89PNG\\r\\n\\x1a\\n"), "after"]

@tool
def crashes(*, out: str = "", err: str = "", die: bool = True) -> str:
    if out:
        print(out, flush=True)
    if err:
        print(err, file=sys.stderr, flush=True)
    if die:
        os.abort()
    return "lived"
"""


def story(daemon: Project, tool: str) -> Any:
    """The newest call of a tool."""
    call = next(call for call in daemon.run("calls", "--json").json("calls")["calls"] if call["tool"] == tool)
    return daemon.run("calls", call["call_id"], "--json").json("calls ID")


@pytest.mark.slow
def test_a_call_shows_its_arguments_and_its_result_without_secrets_and_bounded(daemon: Project) -> None:
    daemon.tool("talk", TALK)
    daemon.run(
        "call",
        "talk_says",
        "--args",
        json.dumps({"text": "hello", "password": "hunter2", "more": {"api_key": ["k-1"], "tokens": 5}}),
    )
    found = story(daemon, "talk_says")
    assert found["arguments"] == (
        '{"text": "hello", "password": "********", "more": {"api_key": ["********"], "tokens": 5}}'
    )
    assert found["result"] == "returned hello"
    shown = daemon.run("calls", found["call"]["call_id"]).out
    assert '\narguments  {"text": "hello", ' in shown
    assert "\nresult\n  returned hello\n" in shown
    assert "hunter2" not in shown
    daemon.run("call", "talk_says", f"text={'long ' * 1000}")
    found = story(daemon, "talk_says")
    assert (found["arguments_bytes"] > 5000, len(found["arguments"]) < 1100) == (True, True)
    assert found["arguments"].endswith('"} …')
    assert (found["result_bytes"] > 5000, len(found["result"]) < 1100) == (True, True)
    daemon.run("call", "talk_picture")
    assert story(daemon, "talk_picture")["result"] == "before\n(image/png)\nafter"


@pytest.mark.slow
def test_what_a_granted_secret_is_stands_in_no_argument(own_daemon: Project) -> None:
    config = own_daemon.home / ".config/toolcell/config.toml"
    config.parent.mkdir(parents=True)
    (own_daemon.home / "secret").write_text("granted-value-of-it")
    config.write_text(
        f'trust = "all"\n[secrets]\nIT = {{ file = "{own_daemon.home}/secret" }}\n[tool.says]\nsecrets = ["IT"]\n'
    )
    own_daemon.tool(
        "says",
        'from toolcell import tool\n@tool(secrets=["IT"])\ndef says(text: str) -> str:\n    return text\n',
    )
    assert own_daemon.run("reload").code == 0
    for text in ("x granted-value-of-it", "y" * 1000 + "granted-value-of-it"):
        assert own_daemon.run("call", "says", f"text={text}").code == 0
        found = story(own_daemon, "says")
        assert "granted" not in found["arguments"] + found["result"]
        assert text[:1] in found["arguments"]


@pytest.mark.slow
def test_refused_calls_are_listed_with_their_reason(daemon: Project) -> None:
    daemon.tool("talk", TALK)
    daemon.tool("broken", "1 / 0")
    assert daemon.run("call", "unknown", "token=t-1", "a=1").code == 3
    assert daemon.run("call", "broken").code == 3
    before = daemon.run("calls", "--json").json("calls")["calls"]
    by_tool = {call["tool"]: call for call in before}
    assert by_tool["unknown"]["state"] == "ended"
    assert (by_tool["unknown"]["outcome"]["kind"], by_tool["unknown"]["outcome"]["cause"]) == (
        "refused",
        "unknown_tool",
    )
    assert by_tool["broken"]["outcome"]["cause"] == "broken_tool"
    assert "refused (unknown_tool)" in daemon.run("calls").out
    found = story(daemon, "unknown")
    assert found["arguments"] == '{"token": "********", "a": "1"}'
    shown = daemon.run("calls", found["call"]["call_id"]).out
    assert "state      refused (unknown_tool)\n" in shown
    assert "sees no tool 'unknown'" in shown


@pytest.mark.slow
def test_a_crash_says_what_its_call_printed_and_nothing_of_another(daemon: Project) -> None:
    daemon.tool("talk", TALK)
    first = daemon.run("call", "talk_crashes", "die:=false", "out=first out", "err=first err")
    assert first.out == "lived\n"
    worker = story(daemon, "talk_crashes")["call"]["worker_id"]
    silent = daemon.run("call", "talk_crashes")
    assert story(daemon, "talk_crashes")["call"]["worker_id"] == worker  # the same process
    _, _, message = silent.err.rpartition("talk_crashes: crashed (SIGABRT)")
    assert re.fullmatch(r'.*\n  File "…/talk.py", line \d+, in crashes\n', message)
    assert "first" not in daemon.run("calls", story(daemon, "talk_crashes")["call"]["call_id"]).out
    out = daemon.run("call", "talk_crashes", "out=second out")
    assert out.err.endswith("\n  second out\n")
    both = daemon.run("call", "talk_crashes", "out=third out", "err=third err")
    assert both.err.endswith("\n  third err\n")
    assert "second" not in both.err
