"""What a wrong command line is told: what is wrong, where, and which help to read, as every other failure."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Project

DURATION = 'soon is no duration; write seconds, or "500ms", "90s", "5m", "2h", "7d".'


@pytest.mark.sampled(one_in=3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message", "command"),
    [
        (("cal",), "No such command 'cal'. Did you mean 'call', 'calls'?", ""),
        (("\x1b[31mred",), r"No such command '\x1b[31mred'.", ""),
        (("--frob",), "No such option: --frob.", ""),
        (("-C",), "Option '-C' requires an argument.", ""),
        (("call", "x", "--timeout"), "Option '--timeout' requires an argument.", " call"),
        (("call", "x", "--timeout", "soon"), f"Invalid value for '--timeout': {DURATION}", " call"),
        (("call", "--socket"), "Option '--socket' requires an argument.", " call"),
        (("logs", "-n", "many"), "Invalid value for '-n': many is no whole number from 0 to 10000.", " logs"),
        (("logs", "-n", "-1"), "Invalid value for '-n': -1 is no whole number from 0 to 10000.", " logs"),
        (("logs", "-n", "10001"), "Invalid value for '-n': 10001 is no whole number from 0 to 10000.", " logs"),
        (("logs", "-n", "9" * 5000), f"Invalid value for '-n': {'9' * 5000} is no whole number from 0 to 10000.", " logs"),
        (("explain",), "Missing argument 'tool'.", " explain"),
        (("version", "of", "it"), "Got unexpected extra argument(s) (of it).", " version"),
        (("mcp", "install", "--write=1"), "Option '--write' does not take a value.", " mcp install"),
        (("config", "nix"), "No such command 'nix'.", " config"),
    ],
)  # fmt: skip
def test_a_usage_error_is_a_failure_like_every_other(
    project: Project, words: tuple[str, ...], message: str, command: str
) -> None:
    done = project.run(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"toolcell: {message}\n  See: toolcell{command} --help\n"


def test_with_json_a_usage_error_is_an_object(project: Project) -> None:
    for words in (("--json", "logs", "-n", "many"), ("logs", "-n", "many", "--json")):
        done = project.run(*words)
        assert done.code == 2
        assert done.json("error")["error"] == {
            "code": "usage",
            "message": "Invalid value for '-n': many is no whole number from 0 to 10000.",
            "remedy": "See: toolcell logs --help",
        }


def test_a_command_without_its_word_prints_its_help(project: Project) -> None:
    for words in ((), ("config",)):
        done = project.run(*words)
        assert (done.code, done.out) == (2, "")
        assert done.err == project.run(*words, "--help").out
