"""Whom a person trusts, and what the host can hold the others to: trust and doctor."""

from __future__ import annotations

import sys

from tests.daemons import checked

from .conftest import Project, user_daemon

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
    assert daemon.run("call", "asks").code == 3

    assert "Trusted, whatever its code will be." in daemon.run("trust", ".").out
    called = daemon.run("call", "asks")
    assert (called.code, called.out) == (0, "*" * 15 + "\n")

    listing = daemon.run("trust", "--list", "--json").json("trust --list")
    assert [(it["directory"], it["pinned"], it["secrets"]) for it in listing["trusts"]] == [
        (str(daemon.directory), False, ["TOKEN"])
    ]
    revoked = daemon.run("trust", "--revoke", "--json").json("trust --revoke")
    assert revoked["was_trusted"]
    assert daemon.run("call", "asks").code == 3


def test_a_pin_holds_until_the_code_changes_and_outlives_the_daemon(project: Project) -> None:
    configured(project)
    pinned = project.run("trust", "--digest", "--json").json("trust")
    assert (pinned["state"], pinned["trust"]["pinned"]) == ("pinned", True)
    assert project.run("call", "asks").code == 0
    (project.tools / "_helper.py").write_text("changed = True\n")
    assert project.run("call", "asks").code == 3
    assert project.run("trust", "--show", "--json").json("trust")["state"] == "changed"


def test_a_directory_that_is_none_is_refused(project: Project) -> None:
    done = project.run("trust", "/nonexistent/project", "--json")
    assert done.code == 3
    assert done.json("error")["error"]["code"] == "bad_request"


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
from toolcelld.sandbox import linux, seccomp
from toolcelld.sandbox.syscalls import NUMBERS

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
