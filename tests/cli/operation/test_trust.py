"""Whom a person trusts, and what the host can hold the others to: trust and doctor."""

from __future__ import annotations

import json
import sys

import pytest
from tests.cli.conftest import Project, user_daemon
from tests.daemons import checked

from toolcell.cli.operation import trust
from toolcell_proto.v1 import operator_pb2

ASKS = '''
from toolcell import tool

@tool(secrets=["TOKEN"], network=["api.example.com"])
def asks() -> str:
    """Ask for much."""
    import os
    return os.environ["TOKEN"]

@tool
def plain() -> str:
    """Ask for nothing."""
    return "plain"
'''
SECRET = 'trust = "confined"\n[secrets]\nTOKEN = { file = "%s" }\n[defaults]\nsandbox = "none"\n'


def configured(project: Project) -> Project:
    directory = project.home / ".config/toolcell"
    directory.mkdir(parents=True, exist_ok=True)
    (project.home / "token").write_text("hunter2-hunter2\n")
    (directory / "config.toml").write_text(SECRET % (project.home / "token"))
    project.tool("asks", ASKS)
    return project


@pytest.mark.slow
def test_trust_shows_what_is_asked_for_and_grants_it(daemon: Project) -> None:
    configured(daemon)
    assert daemon.run("reload").code == 0
    refused = daemon.run("call", "asks")
    assert refused.code == 3
    assert f"toolcell trust {daemon.directory}" in refused.err
    assert daemon.run("call", "asks_plain", "--quiet").out == "plain\n"

    shown = daemon.run("trust", "--show")
    assert f"{daemon.directory} is not trusted." in shown.out
    assert "  asks (.toolcell/tools/asks.py): the network to api.example.com, the secret TOKEN\n" in shown.out
    assert shown.out.endswith("  asking for nothing: asks_plain\n")
    assert daemon.run("call", "asks").code == 3

    unasked = daemon.run("trust", ".")
    assert (unasked.code, "toolcell trust --yes" in unasked.err) == (3, True)
    assert daemon.run("call", "asks").code == 3

    assert "Trusted, whatever its code will be" in daemon.run("trust", "--yes", ".").out
    called = daemon.run("call", "asks")
    assert (called.code, called.out) == (0, "*" * 15 + "\n")

    listing = daemon.run("trust", "--list", "--json").json("trust --list")
    assert [
        (it["pinned"], it["secrets"]) for it in listing["trusts"] if it["directory"] == str(daemon.directory)
    ] == [(False, ["TOKEN"])]
    revoked = daemon.run("trust", "--revoke", "--json").json("trust --revoke")
    assert revoked["was_trusted"]
    assert daemon.run("call", "asks").code == 3


@pytest.mark.slow
def test_a_trust_that_cannot_be_written_down_says_that_it_ends_with_the_daemon(project: Project) -> None:
    configured(project)
    database = project.home / ".local/state/toolcell/toolcell.sqlite"
    database.mkdir(parents=True)
    granted = project.run("trust", "--yes", env={"XDG_STATE_HOME": str(project.home / ".local/state")})
    assert granted.code == 0
    assert "Trusted, whatever its code will be" in granted.out
    assert "The trust ends with this daemon" in granted.err


@pytest.mark.slow
def test_a_pin_holds_until_the_code_changes_and_outlives_the_daemon(project: Project) -> None:
    configured(project)
    pinned = project.run("trust", "--yes", "--digest", "--json").json("trust")
    assert (pinned["state"], pinned["trust"]["pinned"]) == ("pinned", True)
    assert project.run("call", "asks").code == 0
    (project.tools / "_helper.py").write_text("changed = True\n")
    assert project.run("call", "asks").code == 3
    assert project.run("trust", "--show", "--json").json("trust")["state"] == "changed"


@pytest.mark.slow
def test_a_directory_that_is_none_is_refused(project: Project) -> None:
    done = project.run("trust", "--yes", "/nonexistent/project", "--json")
    assert done.code == 3
    assert done.json("error")["error"]["code"] == "bad_request"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/tmp", "home", "/"])
def test_a_shared_directory_and_the_home_directory_cannot_be_trusted(project: Project, place: str) -> None:
    directory = str(project.home) if place == "home" else place
    done = project.run("trust", "--yes", directory)
    assert (done.code, "cannot be trusted" in done.err) == (3, True)
    assert project.run("trust", "--list", "--json").json("trust --list")["trusts"] == []
    assert project.run("trust", "--list").out == "No project is trusted.\n"


@pytest.mark.slow
def test_the_question_is_asked_on_a_terminal(project: Project) -> None:
    configured(project)
    with project.screen("trust") as screen:
        screen.until("[y/N]")
        screen.type("n\n")
        screen.until("Nothing was granted.")
        assert screen.end() == 3
    with project.screen("trust") as screen:
        screen.until("[y/N]")
        screen.type("y\n")
        screen.until("Trusted, ")
        assert screen.end() == 0
    assert project.run("call", "asks").code == 0


LATER = """
from toolcell import tool

@tool
def deploy() -> str:
    \"\"\"Show the token.\"\"\"
    import os
    return os.environ.get("TOKEN", "no token")
"""


@pytest.mark.slow
def test_a_tool_that_is_new_in_a_trusted_project_is_asked_about_and_only_that(daemon: Project) -> None:
    configured(daemon)
    with (daemon.home / ".config/toolcell/config.toml").open("a") as config:
        config.write('[tool.deploy]\nsecrets = ["TOKEN"]\n')
    assert daemon.run("reload").code == 0
    assert daemon.run("trust", "--yes").code == 0
    daemon.tool("deploy", LATER)
    assert daemon.run("reload").code == 0
    assert daemon.run("call", "deploy").out == "no token\n"
    assert daemon.run("call", "asks").code == 0

    shown = daemon.run("trust", "--show").out
    new, granted = shown.split("Granted before:")
    assert "deploy (.toolcell/tools/deploy.py): the secret TOKEN" in new
    assert ("asks (" in new, "asks (" in granted) == (False, True)
    states = {
        it["tool"]: it["state"] for it in daemon.run("trust", "--show", "--json").json("trust")["tools"]
    }
    assert states == {"asks": "granted", "asks_plain": "granted", "deploy": "new"}
    assert daemon.run("trust", "--yes").code == 0
    assert daemon.run("call", "deploy").out == "*" * 15 + "\n"


def test_a_tool_that_asks_for_more_keeps_what_was_shown(daemon: Project) -> None:
    configured(daemon)
    assert daemon.run("reload").code == 0
    assert daemon.run("trust", "--yes").code == 0
    daemon.tool("asks", ASKS.replace('"api.example.com"', '"api.example.com", "evil.example.com"'))
    assert daemon.run("reload").code == 0
    states = {
        it["tool"]: it["state"] for it in daemon.run("trust", "--show", "--json").json("trust")["tools"]
    }
    assert states == {"asks": "more", "asks_plain": "granted"}
    assert "(more than before)" in daemon.run("trust", "--show").out


def test_what_has_changed_of_a_server_is_shown_and_cannot_control_the_terminal() -> None:
    differs = "--- as it was accepted\n+Read \x1b[2J it."
    changed = operator_pb2.ToolAsks(
        tool="git_a", state="changed", why="git_a is withheld", difference=differs
    )
    other = operator_pb2.ToolAsks(tool="git_b", state="granted")
    asked = operator_pb2.GetTrustResponse(directory="/p", state="changed", tools=[changed, other])
    assert list(trust._changes(asked, "git")) == [  # pyright: ignore[reportPrivateUsage]
        "These tools of git are withheld until they are accepted:",
        "  git_a: git_a is withheld",
        "    --- as it was accepted",
        "    +Read \ufffd[2J it.",
    ]
    asked = operator_pb2.GetTrustResponse(directory="/p", state="trusted", tools=[other])
    assert list(trust._changes(asked, "git")) == ["Each tool of git is as it was accepted."]  # pyright: ignore[reportPrivateUsage]


def test_the_command_of_a_server_is_shown_also_where_its_tools_are_known() -> None:
    path = "/p/.mcp.json/git@0f.mcp"
    known = operator_pb2.ToolAsks(tool="git_a", path=path, state="new")
    starts = operator_pb2.FileAsks(path=path, gets=["it starts git-server --all"])
    asked = operator_pb2.GetTrustResponse(directory="/p", state="untrusted", tools=[known], files=[starts])
    shown = list(trust._asks(asked))  # pyright: ignore[reportPrivateUsage]
    assert "  MCP server git of .mcp.json: it starts git-server --all" in shown


def test_a_server_is_one_of_the_configuration(daemon: Project) -> None:
    unknown = daemon.run("trust", "--server", "none")
    assert (unknown.code, "has no MCP server none" in unknown.err) == (3, True), unknown
    assert daemon.run("trust", "--server", "none", "--revoke").code == 2


RUNS = """
from pathlib import Path
from toolcell import tool
Path({path!r}).touch()

@tool(network=["a.example.com"])
def runs() -> str:
    \"\"\"Leave a trace when it is loaded.\"\"\"
    return "ran"
"""


@pytest.mark.slow
def test_ask_loads_nothing_of_an_untrusted_project_and_one_trust_is_enough(daemon: Project) -> None:
    configured(daemon)
    config = daemon.home / ".config/toolcell/config.toml"
    config.write_text(config.read_text().replace('"confined"', '"ask"'))
    trace = daemon.home / "trace"
    assert daemon.run("reload").code == 0
    daemon.tool("runs", RUNS.format(path=str(trace)))
    refused = daemon.run("call", "runs")
    assert (refused.code, f"toolcell trust {daemon.directory}" in refused.err) == (3, True)
    daemon.run("tools")
    assert "Not known" in daemon.run("trust", "--show").out
    assert not trace.exists()

    granted = daemon.run("trust", "--yes").out
    assert "Known now, after their files could be described:" in granted
    assert "runs (.toolcell/tools/runs.py): the network to a.example.com" in granted
    assert trace.exists()
    assert daemon.run("call", "runs").code == 0


@pytest.mark.slow
def test_an_untrusted_tool_does_not_take_the_place_of_the_users_own(daemon: Project) -> None:
    own = daemon.home / ".config/toolcell/tools"
    own.mkdir(parents=True)
    (own / "note.py").write_text(NOTE.format(whose="own"))
    daemon.tool("note", NOTE.format(whose="the project's"))
    assert daemon.run("reload").code == 0
    assert daemon.run("call", "note", "text=x").out == "own: x\n"
    assert "toolcell trust" in json.dumps(daemon.run("tools", "--json").json("tools")["problems"])
    assert daemon.run("trust", "--yes").code == 0
    assert daemon.run("call", "note", "text=x").out == "the project's: x\n"
    assert daemon.run("trust", "--revoke").code == 0
    assert daemon.run("call", "note", "text=x").out == "own: x\n"


NOTE = """
from toolcell import tool

@tool
def note(text: str) -> str:
    \"\"\"Take a note.\"\"\"
    return {whose!r} + ": " + text
"""


@pytest.mark.slow
def test_the_doctor_tells_every_profile_and_needs_no_daemon(project: Project) -> None:
    told = project.run("doctor", "--json").json("doctor")
    profiles = {it["name"]: it for it in told["findings"] if it["kind"] == "profile"}
    assert set(profiles) == {"none", "baseline", "strict"}
    assert profiles["none"]["state"] != "missing"
    assert all(it["detail"] for it in profiles.values() if it["state"] == "missing")
    assert {"kernel", "Landlock", "control groups", "spill quota"} <= {it["name"] for it in told["findings"]}
    done = project.run("doctor")
    assert done.code == (0 if told["healthy"] else 1)
    assert "[defaults] sandbox" in done.out


WITHOUT_NAMESPACES = """
import errno, os, sys
from toolcelld import linux
from toolcelld.sandbox.system_calls import seccomp
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

program = [
    (seccomp.LOAD, 0, 0, seccomp.NUMBER_OFFSET),
    (seccomp.JUMP_IF_EQUAL, 0, 1, NUMBERS[os.uname().machine]["unshare"]),
    (seccomp.RETURN, 0, 0, seccomp.FAIL | errno.EPERM),
    (seccomp.RETURN, 0, 0, seccomp.ALLOW),
]
linux.no_new_privileges()
linux.filter_system_calls(b"".join(seccomp.INSTRUCTION.pack(*it) for it in program))
os.execv(sys.argv[1], sys.argv[1:])
"""
"""A host without namespaces for any user, as many containers do."""


@pytest.mark.slow
def test_the_doctor_fails_where_the_configured_profile_cannot_be_had(project: Project) -> None:
    config = project.home / ".config/toolcell/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[defaults]\nsandbox = "strict"\n')
    project.tool("plain", ASKS)
    through = [sys.executable, "-c", WITHOUT_NAMESPACES]
    with checked(user_daemon(project.home, through)) as daemon:
        daemon.launch()
        told = project.run("doctor", "--json")
        assert told.code == 1
        found = told.json("doctor")
        profiles = {it["name"]: it for it in found["findings"] if it["kind"] == "profile"}
        assert not found["healthy"]
        assert "not permitted" in profiles["strict"]["detail"]
        assert profiles["strict"]["remedy"]
        done = project.run("doctor")
        assert (done.code, "strict" in done.out) == (1, True)
        refused = project.run("call", "plain")
        assert (refused.code, "toolcell doctor" in refused.err) == (3, True)

        config.write_text('[defaults]\nsandbox = "none"\n')
        assert project.run("reload").code == 0
        assert project.run("doctor").code == 0


READS = """
import os
from toolcell import tool

@tool
def reads() -> list[str]:
    \"\"\"Tell what the project asks for.\"\"\"
    return [name for name in ("DATABASE_URL", "PGHOST", "TOKEN", "https_proxy") if name in os.environ]
"""


@pytest.mark.slow
def test_what_the_project_asks_for_in_its_own_configuration_is_granted_by_trust(project: Project) -> None:
    directory = project.home / ".config/toolcell"
    directory.mkdir(parents=True)
    (project.home / "token").write_text("hunter2-hunter2\n")
    (directory / "config.toml").write_text(
        f'[secrets]\nTOKEN = {{ file = "{project.home}/token" }}\n[defaults]\nsandbox = "strict"\n'
    )
    project.tool("reads", READS)
    asks = project.directory / ".toolcell/config.toml"
    asks.write_text(
        'network = ["api.example.com"]\nsecrets = ["TOKEN"]\nenv = ["DATABASE_URL"]\n[limits]\ntimeout = "7s"\n'
    )
    daemon = user_daemon(project.home)
    daemon.environment |= {"DATABASE_URL": "postgres://", "PGHOST": "localhost"}
    with checked(daemon):
        daemon.start()
        refused = project.run("call", "reads")
        if "toolcell doctor" in refused.err:
            pytest.skip("this host has no strict cells")
        assert (refused.code, f"toolcell trust {project.directory}" in refused.err) == (3, True)
        shown = project.run("trust", "--show").out
        assert (
            "reads (.toolcell/tools/reads.py): the network to api.example.com, the secret TOKEN, the variable DATABASE_URL"
            in shown
        )

        below = project.directory / "a/b"
        below.mkdir(parents=True)
        assert project.run("-C", str(below), "trust", "--yes").code == 0
        called = project.run("-C", str(below), "call", "reads", "--quiet")
        assert json.loads(called.out) == ["DATABASE_URL", "TOKEN", "https_proxy"], called.err
        timeout = next(line for line in project.run("tools", "reads").out.splitlines() if "timeout" in line)
        assert timeout.split() == ["timeout", "7s", "file"]

        asks.write_text(asks.read_text().replace('["DATABASE_URL"]', '["DATABASE_URL", "PGHOST"]'))
        assert project.run("reload").code == 0
        called = project.run("call", "reads", "--quiet")
        assert json.loads(called.out) == ["DATABASE_URL", "TOKEN", "https_proxy"], "what is new was not shown"
        assert "the variable PGHOST (more than before)" in project.run("trust", "--show").out
        assert project.run("trust", "--yes").code == 0
        assert "PGHOST" in project.run("call", "reads", "--quiet").out


@pytest.mark.slow
def test_a_damaged_database_is_told_where_trust_is_shown(project: Project) -> None:
    state = project.home / ".local/state/toolcell"
    state.mkdir(parents=True, mode=0o700)
    (state / "toolcell.sqlite").write_bytes(b"no database " * 1000)
    said = f"The database was damaged and is set aside as {state}/toolcell.sqlite.damaged"
    listed = project.run("trust", "--list")
    assert (listed.code, said in listed.err) == (0, True)
    assert "Give them again, toolcell trust DIR or toolcell disable TOOL, and remove that file" in listed.err
    assert said in project.run("trust", "--show").err
    assert project.run("trust", "--list", "--json").json("trust --list")["notices"][0].startswith(said)
    (found,) = [
        one for one in project.run("doctor", "--json").json("doctor")["findings"] if one["name"] == "database"
    ]
    assert (found["state"], found["detail"].startswith(said)) == ("missing", True)
