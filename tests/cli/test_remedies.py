"""Every command that a message of the daemon names is typed as it stands, and what had failed works.

`FOLLOWED` has a case for each place that makes one of `config set`, and `TYPED` one for each other command, or the test that
types it; a place without a case fails a test, or says why it has none.
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
import typer
from tests.cli.conftest import Project, user_daemon
from tests.daemons import RunningDaemon, kept, renewed

import toolcelld
from toolcell.cli._command_line.app import app

COMMAND = re.compile(r"toolcell (config set [^&\n]*?)(?= && |   or |\n|$)", re.MULTILINE)
OTHER = re.compile(r"toolcell ((?:drain|enable|release) .*)$", re.MULTILINE)
NAMED = re.compile(r"\btoolcell ([a-z]+)")


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
    before: tuple[str, ...] = ()
    """What an operator has typed."""


def plain(body: str, options: str = "") -> str:
    return f"from toolcell import tool\n@tool{options}\ndef t() -> str:\n    {body}\n"


HELLO = plain("return 'hello'")
CALL = ("call", "t")
FOLLOWED: dict[tuple[str, str], Case | str] = {
    ("catalog/assembly.py", "_protected"): Case(
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
    ("rpc/operators/trust_request.py", "check_owners"): "tests/cli/operation/test_accepting.py follows it",
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


TYPED: dict[tuple[str, str], Case | str] = {
    ("policy/decisions/disabled.py", "enable"): Case(
        HELLO, CALL, "is disabled by an operator", before=("disable", "t", "--reason", "x")
    ),
    ("pool/quarantine.py", "release"): Case(HELLO, CALL, "is in quarantine", before=("quarantine", "t")),
    ("sessions/registry.py", "drain"): Case(HELLO, CALL, "an operator drains the daemon", before=("drain",)),
    ("backup.py", "stop"): "process/test_backup.py::test_a_directory_that_is_in_use_is_left_alone",
    ("calls/functions/hook_run.py", "reload"): (
        "process/test_hooks.py::test_a_hook_that_cannot_be_used_refuses_the_calls_of_its_tools"
    ),
    ("calls/installation.py", "doctor"): "of the host, which no command mends",
    ("calls/outcomes/outcome.py", "config"): "of two keys, by the command of config/remedies.py",
    ("calls/questions.py", "call"): (
        "daemon/calls/test_questions.py::test_where_nobody_answers_every_question_is_denied"
    ),
    ("catalog/assembly.py", "trust"): "cli/test_remedies.py::{hidden}",
    ("catalog/discovery/project_servers.py", "mcp"): (
        "process/test_project_servers.py::test_what_would_give_a_server_more_is_said_as_it_works"
    ),
    ("catalog/problem.py", "init"): "cli/test_remedies.py::{helper}",
    (
        "config/remedies.py",
        "config",
    ): "cli/test_remedies.py::test_each_place_that_makes_a_command_is_followed",
    ("configuration.py", "config"): "process/test_last_good.py::{last_good}",
    ("configuration.py", "reload"): "process/test_last_good.py::{last_good}",
    ("environments/builder.py", "config"): (
        "process/test_environments.py::test_without_uv_the_error_says_how_to_install_it"
    ),
    ("policy/decisions/consent.py", "trust"): "cli/test_first_week.py::{week}",
    ("policy/explain.py", "reload"): (
        "cli/operation/test_explain.py::test_a_protected_name_and_the_grant_that_it_names"
    ),
    ("policy/explain.py", "stop"): "cli/operation/test_explain.py::test_a_variable_and_a_program",
    ("policy/interpreters.py", "prepare"): "cli/authoring/test_prepare.py::{prepare}",
    ("policy/permit.py", "prepare"): "of a server from npm, in tests/public/test_public_servers.py",
    ("policy/permit.py", "reload"): (
        "process/test_secrets.py::test_a_secret_that_cannot_be_read_says_which_why_and_what_to_do"
    ),
    ("policy/profiles.py", "doctor"): "of the host, which no command mends",
    ("policy/ruleset.py", "trust"): (
        "process/test_changing_servers.py::test_a_tool_that_changes_is_withheld_until_its_difference_is_accepted"
    ),
    ("records/ledger.py", "logs"): "daemon/test_store.py has the text; the records are lost",
    ("rpc/agent_service.py", "release"): (
        "cli/operation/test_release.py::test_a_tool_that_was_shut_out_is_released_by_its_name_or_its_path"
    ),
    ("rpc/operators/doctor.py", "prepare"): (
        "cli/authoring/test_prepare.py::"
        "test_an_edit_of_the_lock_file_makes_other_packages_and_the_old_ones_are_not_used_but_removed"
    ),
    ("rpc/messages/decoding.py", "restart"): "of another version of the daemon",
    ("rpc/operator_service.py", "trust"): "of a thousand projects",
    ("rpc/operators/steering.py", "status"): "of a thousand tools",
    ("rpc/operators/trust_request.py", "trust"): (
        "cli/test_first_week.py::test_a_hostile_project_gains_nothing_by_a_file_that_is_trusted_by_its_path"
    ),
    ("store.py", "disable"): "process/test_damaged_state.py::{damaged}",
    ("store.py", "stop"): "of a file system that does not work",
    ("store.py", "trust"): "process/test_damaged_state.py::{damaged}",
    ("worker/calling/denial.py", "explain"): (
        "cli/test_remedies.py::"
        "test_a_variable_that_an_import_wants_is_given_by_the_commands_that_explain_names"
    ),
}
TESTS = {
    "hidden": "test_an_untrusted_tool_takes_the_place_of_another_after_the_command_that_its_problem_names",
    "helper": "test_a_directory_with_a_helper_alone_has_a_tool_after_the_command_that_its_problem_names",
    "week": "test_the_first_week_needs_no_knowledge_that_is_not_in_the_message_before",
    "last_good": "test_a_daemon_starts_with_the_configuration_that_had_no_mistake",
    "prepare": "test_what_the_lock_file_says_is_installed_and_the_tool_reads_it",
    "damaged": "test_lost_decisions_of_trust_are_told_where_they_are_missed",
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


RIGHT: list[str] = []
"""What the cases of this run typed, each of which mended what it is about."""


@pytest.fixture(scope="module", autouse=True)
def counted() -> Iterator[None]:
    """Print at the end how many remedies there are, for `-s` and `-rA`."""
    yield
    places = [*FOLLOWED.values(), *TYPED.values()]
    typed = sum(isinstance(case, Case) for case in places)
    elsewhere = sum(isinstance(case, str) and "::" in case for case in places)
    print(
        f"remedies: {len(places)} found; {typed + elsewhere} followed, {typed} of them here and {elsewhere} by tests of "
        f"their own; {len(RIGHT)} commands typed here in this run, all right; "
        f"{len(places) - typed - elsewhere} cannot be followed, with a reason each"
    )


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


def strings(path: Path) -> Iterator[str]:
    """The texts of a module, without those that document it."""
    tree = ast.parse(path.read_text())
    documents = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value


def named() -> set[tuple[str, str]]:
    """The commands that messages name, each with the module of the message."""
    root = Path(toolcelld.__file__).parent
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        (str(path.relative_to(root)), word)
        for path in root.rglob("*.py")
        if path.name != "reference.py" and NAMED.search(path.read_text())  # the text of a page
        for text in strings(path)
        for word in NAMED.findall(text)
        if word in group.commands
    }


@pytest.mark.slow
def test_each_other_command_that_a_message_names_is_typed_in_a_test() -> None:
    assert named() == TYPED.keys() | {
        ("program.py", "serve"),
        ("backup.py", "backup"),
        ("remote/joining.py", "join"),
    }
    tests = Path(__file__).parents[1]
    for where in TYPED.values():
        if isinstance(where, str) and "::" in where:
            path, _, name = where.format(**TESTS).partition("::")
            assert f"def {name}(" in (tests / path).read_text(), where


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=" ".join(place))
        for place, case in {**FOLLOWED, **TYPED}.items()
        if isinstance(case, Case)
    ],
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
    if case.before:
        assert project.run(*case.before).code == 0
    failed = project.run(*case.fails)
    assert case.says in failed.out + failed.err, failed
    commands = (OTHER if case.before else COMMAND).findall(failed.out + failed.err)
    assert commands, failed
    for command in commands:
        before, after = case.real
        typed = command.replace(before, after.format(home=project.home)) if before else command
        done = project.run(*shlex.split(typed))
        assert done.code == 0, (typed, done)
    done = project.run(*(case.works or case.fails))
    assert done.code == 0, done
    assert case.says not in done.out + done.err
    RIGHT.extend(commands)


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


@pytest.mark.slow
def test_an_untrusted_tool_takes_the_place_of_another_after_the_command_that_its_problem_names(
    project: Project,
) -> None:
    written(project, "user", HELLO)
    written(project, "project", HELLO.replace("hello", "of the project"))
    hidden = project.run("check").out
    assert ".toolcell/tools/t.py is hidden by that of" in hidden
    assert project.run(*CALL).out == "hello\n"
    (command,) = re.findall(r"To trust it: toolcell (.*)", hidden)
    assert project.run(*shlex.split(command), "--yes").code == 0
    assert project.run(*CALL).out == "of the project\n"


@pytest.mark.slow
def test_a_directory_with_a_helper_alone_has_a_tool_after_the_command_that_its_problem_names(
    project: Project,
) -> None:
    (project.tools / "_helper.py").write_text("")
    (command,) = re.findall(r"write one: toolcell (.*)", project.run("check").out)
    assert project.run(*shlex.split(command)).code == 0
    assert project.run("call", "hello", "name=Ada").code == 0


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
