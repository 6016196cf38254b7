"""Every command of `config set` that a message names is typed as it stands, and what had failed works.

`FOLLOWED` has a case for each place in the daemon that makes one; a place without a case fails a test, or says why it has none.
"""

from __future__ import annotations

import ast
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cli.conftest import Project, user_daemon
from tests.daemons import RunningDaemon, kept, renewed

import toolcelld

COMMAND = re.compile(r"toolcell (config set [^&\n]*?)(?= && |   or |\n|$)", re.MULTILINE)


class Case(NamedTuple):
    tool: str
    """The file `t.py` in the user's directory of tools."""
    fails: tuple[str, ...]
    """What is typed first."""
    says: str
    """What it prints of the fault, on either stream."""
    config: str = ""
    works: tuple[str, ...] = ()
    """What is typed at the end, and ends well without the fault; default: the same."""
    real: tuple[str, str] = ("", "")
    """What a person puts in place of an example in the command."""


def plain(body: str, options: str = "") -> str:
    return f"from toolcell import tool\n@tool{options}\ndef t() -> str:\n    {body}\n"


HELLO = plain("return 'hello'")
CALL = ("call", "t")
FOLLOWED: dict[tuple[str, str], Case | str] = {
    ("catalog/catalog.py", "_protected"): Case(
        plain("return 'mine'", "(name='git-status')"),
        ("check",),
        "has the name of a built-in tool",
        '[daemon]\npacks = ["builtin"]\n',
        ("check",),
    ),
    (
        "catalog/discovery/sources.py",
        "_not_used",
    ): "tests/daemon/catalog/test_listed.py follows it",
    ("rpc/trust_request.py", "check_owners"): "tests/cli/operation/test_accepting.py follows it",
    (
        "policy/interpreters.py",
        "missing_module",
    ): "the path is an example; tests/cli/test_first_week.py has an interpreter named",
    (
        "sessions/registry.py",
        "_check_room",
    ): "tests/process/test_hoarding.py has the text",
    ("sessions/retention.py", "check"): "nor of bytes; tests/daemon/sessions/test_retention.py has the text",
    ("policy/profiles.py", "policy_of"): Case(
        plain("return 'hello'", "(network=['a.example'])"),
        CALL,
        "may reach some hosts only",
        '[tool.t]\nsandbox = "baseline"\nnetwork = ["a.example"]\n',
    ),
    (
        "policy/profiles.py",
        "_given",
    ): "a host without a sandbox; tests/daemon/policy/test_profiles.py has the text",
    ("policy/profiles.py", "_needs_grant"): Case(
        plain("import os; return os.environ['KEY']", "(secrets=['KEY'], network=['a.example'])"),
        CALL,
        "which is not granted",
        '[secrets]\nKEY = { command = ["echo", "value"] }\n',
    ),
    ("policy/explain.py", "_path"): Case(
        HELLO, ("explain", "t", "./file"), "read, not write", "[tool.t]\nread_only = true\n"
    ),
    ("policy/explain.py", "_host"): Case(HELLO, ("explain", "t", "a.example:8080"), "not connect"),
    ("policy/explain.py", "_program"): Case(
        HELLO,
        ("explain", "t", "mine"),
        "not start",
        real=("/directory/of/mine", "{home}/programs"),
    ),
    ("policy/explain.py", "_variable"): Case(HELLO, ("explain", "t", "MINE"), "not read"),
    ("policy/ruleset.py", "switched_off"): Case(
        HELLO, CALL, "is switched off", '[tool."t*"]\nenabled = false\n'
    ),
    ("calls/permission.py", "_unanswerable"): Case(
        HELLO, CALL, "when a person has said yes", '[permissions]\n"*" = "ask"\n'
    ),
    ("calls/outcomes/outcome.py", "_raise"): Case(
        plain("import time; time.sleep(2.5); return 'late'", "(timeout=2)"), CALL, "timed_out"
    ),
    ("calls/outcomes/network.py", "_grant"): Case(
        plain("import socket; return str(socket.getaddrinfo('a.example', 443)[0][4])"),
        ("call", "t", "--quiet"),
        "has no network, so it cannot reach a.example:443",
    ),
}


@pytest.fixture(scope="module")
def lasting_daemon() -> Iterator[RunningDaemon]:
    """A user's daemon that has the variable of these tests."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as home:
        daemon = user_daemon(Path(home))
        daemon.environment["MINE"] = "of the daemon"
        with kept(daemon):
            daemon.start()
            yield daemon


@pytest.fixture
def project(lasting_daemon: RunningDaemon) -> Iterator[Project]:
    """A project whose user's daemon runs."""
    with renewed(lasting_daemon):
        yield Project(lasting_daemon.directory, lasting_daemon.project)


def makers() -> set[tuple[str, str]]:
    """The functions that make such a command, each with its module."""
    root = Path(toolcelld.__file__).parent
    found: set[tuple[str, str]] = set()
    for path in root.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                isinstance(call, ast.Call) and getattr(call.func, "id", "") == "set_command"
                for call in ast.walk(function)
            ):
                found.add((str(path.relative_to(root)), function.name))
    return found


def test_each_place_that_makes_a_command_is_followed() -> None:
    assert makers() == FOLLOWED.keys()


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=" ".join(place)) for place, case in FOLLOWED.items() if isinstance(case, Case)],
)
def test_a_command_that_a_message_names_mends_what_it_is_about(project: Project, case: Case) -> None:
    own = project.home / ".config" / "toolcell"
    (own / "tools").mkdir(parents=True)
    (own / "tools" / "t.py").write_text(case.tool)
    (own / "config.toml").write_text(case.config)
    (project.directory / "file").write_text("x")
    program = project.home / "programs" / "mine"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert project.run("reload").code == 0
    failed = project.run(*case.fails)
    assert case.says in failed.out + failed.err, failed
    commands = COMMAND.findall(failed.out + failed.err)
    assert commands, failed
    for command in commands:
        before, after = case.real
        typed = command.replace(before, after.format(home=project.home)) if before else command
        done = project.run(*shlex.split(typed))
        assert done.code == 0, (typed, done)
    done = project.run(*(case.works or case.fails))
    assert done.code == 0, done
    assert case.says not in done.out + done.err


def written(project: Project, source: str, code: str) -> None:
    """Write `t.py` into the user's directory of tools, or that of the project."""
    place = project.tools if source == "project" else project.home / ".config" / "toolcell" / "tools"
    place.mkdir(parents=True, exist_ok=True)
    (place / "t.py").write_text(code)


NEXT = re.compile(r"^ *(?:Then: )?(toolcell (?:config set|trust) .*)$", re.MULTILINE)


@pytest.mark.sampled(one_in=3)
@pytest.mark.slow
@pytest.mark.parametrize("source", ["user", "project", "trusted"])
def test_a_variable_that_an_import_wants_is_given_by_the_commands_that_explain_names(
    project: Project, source: str
) -> None:
    written(
        project,
        "user" if source == "user" else "project",
        f"import os\nMINE = os.environ['MINE']\n{plain('return MINE')}",
    )
    if source == "trusted":
        assert project.run("trust", "--yes").code == 0
    failed = project.run("check")
    assert failed.code != 0
    (explain,) = re.findall(r"toolcell (explain .*)", failed.out)
    explained = project.run(*shlex.split(explain))
    commands = NEXT.findall(explained.out)
    assert len(commands) == (1 if source == "user" else 2), explained
    for command in commands:
        if " trust " in command and source == "trusted":
            asked = project.run("trust", "--show").out
            assert "t.py asks for more than when" in asked
            assert ".toolcell/tools/t.py: the variable MINE" in asked
        words = shlex.split(command)[1:]
        done = project.run(*words, *(["--yes"] if words[0] == "trust" else []))
        assert done.code == 0, (command, done)
    assert project.run("check").code == 0
    assert project.run(*CALL).out == "of the daemon\n"


AT_IMPORT = {
    "file": ("open('t.log', 'a').write('x')", "t.log cannot be written"),
    "directory": ("import os; os.makedirs('data', exist_ok=True)", "data cannot be written"),
    "database": ("import sqlite3; sqlite3.connect('t.db').execute('create table a (b)')", "A database cannot be written"),
}  # fmt: skip
"""What an import writes, and what is said of it."""


@pytest.mark.sampled(one_in=3)
@pytest.mark.slow
@pytest.mark.parametrize("case", AT_IMPORT)
def test_what_an_import_cannot_write_is_written_in_the_function_or_below_the_temporary_directory(
    project: Project, case: str
) -> None:
    code, says = AT_IMPORT[case]
    written(project, "project", f"{code}\n{HELLO}")
    failed = project.run("check")
    assert failed.code != 0
    assert f"{says} while a file is loaded to see its tools. Write it in the function of a tool" in failed.out
    assert "toolcell" not in failed.out.partition("broken")[2]  # no command would allow it
    inside = plain(f"{code}; return 'hello'")
    below = f"import os, tempfile\nos.chdir(tempfile.gettempdir())\n{code}\n{HELLO}"
    for moved in (inside, below):
        written(project, "project", moved)
        assert project.run("check").code == 0, moved
        assert project.run(*CALL).out == "hello\n"
