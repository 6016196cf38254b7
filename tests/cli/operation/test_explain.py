"""What `toolcell explain` answers is what the tool finds."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Project
from tests.hostile.guard import GUARDED

REACHES = """
import os, socket, subprocess
from toolcell import tool

def works(action):
    try:
        action()
        return True
    except (OSError, KeyError):
        return False

@tool
def reaches(path: str = "", variable: str = "", program: str = "") -> dict[str, bool]:
    \"\"\"Try.\"\"\"
    found = {}
    if path:
        found["read"] = works(lambda: os.listdir(path) if os.path.isdir(path) else open(path).close())
        found["write"] = works(lambda: open(os.path.join(path, "x") if os.path.isdir(path) else path, "a").close())
    if variable:
        found["variable"] = works(lambda: os.environ[variable])
    if program:
        found["program"] = works(lambda: subprocess.run([program, "--version"], capture_output=True))
    return found
"""


@pytest.fixture(params=["strict", "baseline"])
def confined(daemon: Project, request: pytest.FixtureRequest) -> Project:
    daemon.tool("reaches", REACHES)
    config = daemon.home / ".config/toolcell/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[defaults]\nsandbox = "{request.param}"\n')
    assert daemon.run("reload").code == 0
    (daemon.home / "private").write_text("x")
    done = daemon.run("call", "reaches")
    if "toolcell doctor" in done.err:
        pytest.skip(f"this host cannot give {request.param}")
    return daemon


def asked(project: Project, subject: str) -> dict[str, Any]:
    done = project.run("explain", "reaches", subject, "--json")
    (answer,) = done.json("explain")["explanations"]
    assert done.code == (0 if answer["allowed"] else 3)
    assert answer["rule"]
    return answer  # type: ignore[no-any-return]


def tried(project: Project, **arguments: str) -> dict[str, bool]:
    done = project.run("call", "reaches", *(f"{key}={value}" for key, value in arguments.items()), "--quiet")
    assert done.code == 0, done.err
    return json.loads(done.out)  # type: ignore[no-any-return]


PATHS = {
    "{project}": "read and write",
    "{project}/new": "read and write",
    "/usr/lib/os-release": "read, not write",
    "/etc/hostname": "read, not write",
    "{home}/private": "neither read nor write",
    "{tools}/reaches.py": None,
}


@pytest.mark.slow
def test_paths(confined: Project) -> None:
    for path, answer in PATHS.items():
        place = path.format(project=confined.directory, home=confined.home, tools=confined.tools)
        if Path(place).exists() or place.endswith("/new"):
            a_path(confined, place, answer)


def a_path(confined: Project, place: str, answer: str | None) -> None:
    told = asked(confined, place)
    if answer is not None:
        assert told["answer"] == answer
    expected = {"read and write": (True, True), "read, not write": (True, False)}
    found = tried(confined, path=place)
    if "is private" in told["rule"]:
        found["write"] = False  # what it wrote is in a directory of its own
        assert (confined.home / "private").read_text() == "x"
    if place.endswith("/new"):
        found["read"] = True  # it is made by the attempt to write
    assert (found["read"], found["write"]) == expected.get(told["answer"], (False, False)), place


@pytest.mark.slow
@pytest.mark.skipif(not GUARDED, reason="this host has no guards")
def test_a_protected_name_and_the_grant_that_it_names(confined: Project) -> None:
    place = str(confined.directory / "below" / ".envrc")
    (confined.directory / "below").mkdir()
    told = asked(confined, place)
    assert told["answer"] == "read, not write"
    assert "has a protected name" in told["rule"]
    assert not tried(confined, path=place)["write"]
    assert f'writable = ["{place}"]' in told["remedy"]
    config = confined.home / ".config/toolcell/config.toml"
    config.write_text(config.read_text() + "\n".join(told["remedy"].splitlines()[1:5]) + "\n")
    assert f"toolcell trust {confined.directory}" in told["remedy"]
    assert confined.run("reload").code == 0
    assert confined.run("trust", str(confined.directory), "--yes").code == 0
    assert asked(confined, place)["answer"] == "read and write"
    assert tried(confined, path=place)["write"]


@pytest.mark.slow
def test_a_variable_and_a_program(confined: Project) -> None:
    assert asked(confined, "HOME")["allowed"] is tried(confined, variable="HOME")["variable"] is True
    told = asked(confined, "AWS_KEY")
    assert told["allowed"] is tried(confined, variable="AWS_KEY")["variable"] is False
    assert "toolcell config set tool.reaches.env" in told["remedy"]
    absent = "The daemon was started without AWS_KEY: set it where it is started, then: toolcell stop"
    assert absent in told["remedy"].splitlines()
    grant, _, trust = told["remedy"].splitlines()
    assert confined.run(*shlex.split(grant)[1:]).code == 0
    assert confined.run(*shlex.split(trust.removeprefix("Then: "))[1:], "--yes").code == 0
    granted = asked(confined, "AWS_KEY")
    assert (granted["rule"], granted["remedy"]) == ("it is granted, and the daemon does not have it", absent)
    assert asked(confined, "sh")["allowed"] is tried(confined, program="sh")["program"] is True
    told = asked(confined, "nothing-like-this")
    assert told["allowed"] is tried(confined, program="nothing-like-this")["program"] is False
    assert "PATH" in told["rule"]


@pytest.mark.slow
def test_a_host_that_is_refused_names_the_way_to_it(confined: Project) -> None:
    told = asked(confined, "api.example.com")
    assert (told["kind"], told["allowed"]) == ("host", False)
    assert "toolcell trust" in told["remedy"]
    text = confined.run("explain", "reaches", "api.example.com").out
    assert text.startswith("reaches may not connect api.example.com: network, default\n")


@pytest.mark.slow
def test_everything_that_it_is_given(confined: Project) -> None:
    told = confined.run("explain", "reaches", "--json").json("explain")["explanations"]
    kinds = {it["kind"] for it in told}
    assert {"sandbox", "writable", "readable", "network", "programs", "variables", "secrets"} <= kinds
    assert confined.run("explain", "reaches").code == 0


@pytest.mark.slow
def test_a_tool_that_is_refused_altogether_says_why(confined: Project) -> None:
    done = confined.run("explain", "nothing", "/etc")
    assert (done.code, "sees no tool" in done.err) == (3, True)
    confined.tool("needy", REACHES.replace("@tool", '@tool(secrets=["TOKEN"])').replace("reaches", "needy"))
    done = confined.run("explain", "needy")
    assert (done.code, "toolcell trust" in done.err) == (3, True)


@pytest.mark.slow
def test_a_strange_subject_is_answered(daemon: Project) -> None:
    daemon.tool("reaches", REACHES)
    for subject in ("x" * 5000, "\x1b[2J", "../" * 300, "[::1]:80", "~root", "%s{}"):
        done = daemon.run("explain", "reaches", subject)
        assert done.code in (0, 3), subject
        assert "\x1b" not in done.out + done.err, subject
