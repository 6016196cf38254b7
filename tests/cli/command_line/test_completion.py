"""What a shell is told to suggest. bash itself is asked; zsh and fish ask by the same variables, which are set here."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Project

TOOL = '''
    from toolcell import tool

    @tool
    def word_count(text: str) -> int:
        """Counts $(touch planted) `touch planted` words."""
        return len(text.split())
'''


def program(project: Project) -> Path:
    """Write a program `toolcell` and return its directory."""
    place = project.home / "bin"
    place.mkdir(exist_ok=True)
    script = place / "toolcell"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m toolcell.cli "$@"\n')
    script.chmod(0o755)
    return place


def in_bash(project: Project, *words: str) -> list[str]:
    """Load the script into bash and complete the last of the words, which may be empty."""
    script = f"""
        source <(toolcell completion bash)
        COMP_WORDS=(toolcell {shlex.join(words)}) COMP_CWORD={len(words)}
        _toolcell_completion toolcell
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=project.directory,
        env={**project.environment, "PATH": f"{program(project)}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
def test_bash_completes_commands_options_and_words_of_a_list(project: Project) -> None:
    assert in_bash(project, "ca") == ["call", "calls"]
    assert in_bash(project, "call", "--t") == ["--timeout"]
    assert in_bash(project, "mcp", "install", "cu") == ["cursor"]
    assert in_bash(project, "new", "f") == ["factory", "fastmcp"]


def test_without_a_daemon_nothing_is_suggested_and_none_is_started(project: Project) -> None:
    project.tool("words", TOOL)
    assert in_bash(project, "call", "") == []
    assert not Path(project.socket).exists()


@pytest.mark.slow
def test_tools_and_calls_of_the_running_daemon_are_suggested(own_daemon: Project) -> None:
    own_daemon.tool("words", TOOL)
    assert own_daemon.run("reload").code == 0
    assert own_daemon.run("call", "words_word_count", "text=a b").out == "2\n"
    assert in_bash(own_daemon, "call", "") == ["words_word_count"]
    assert in_bash(own_daemon, "explain", "x") == []
    (call,) = in_bash(own_daemon, "calls", "")
    assert own_daemon.run("calls", call).code == 0
    assert in_bash(own_daemon, "logs", "") == ["words_word_count", call]
    assert not (own_daemon.directory / "planted").exists()


@pytest.mark.slow
def test_arguments_of_a_tool_are_suggested_until_they_are_given(daemon: Project) -> None:
    daemon.tool(
        "more",
        """
        from toolcell import tool

        @tool
        def take(limit: int = 3, line: str = "", *, late: str, what: str) -> str:
            return late
        """,
    )
    daemon.tool("odd.json", '{"name": "odd", "command": "true", "parameters": {"$(id)": "x", "ok": "y"}}')
    assert daemon.run("reload").code == 0
    assert in_bash(daemon, "call", "more_take", "") == ["late=", "what=", "limit=", "line="]
    assert in_bash(daemon, "call", "more_take", "li") == ["limit=", "line="]
    # bash parts words at `=`
    assert in_bash(daemon, "call", "more_take", "late", "=", "'a b'", "limit", ":=", "3", "l") == ["line="]
    assert in_bash(daemon, "call", "more_take", "late", "=", "") == []
    assert in_bash(daemon, "call", "nothing", "") == []
    for shell, expected in (("zsh", "compadd -S '' -- late=\n"), ("fish", "late=\n")):
        asked = {
            "_TOOLCELL_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": "toolcell call more_take what=$(id) la",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        assert daemon.run(env=asked).out == expected


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_what_other_shells_evaluate_has_no_text_of_a_tool(daemon: Project, shell: str) -> None:
    daemon.tool("words", TOOL)
    assert daemon.run("reload").code == 0
    asked = {
        "_TOOLCELL_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "toolcell call ",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    answer = daemon.run(env=asked).out
    assert "words_word_count" in answer
    assert "planted" not in answer
    assert daemon.run("completion", shell).out


def test_a_shell_that_is_not_known_is_refused(project: Project) -> None:
    done = project.run("completion", "tcsh")
    assert (done.code, done.out) == (2, "")
    assert "bash, zsh, fish" in done.err
