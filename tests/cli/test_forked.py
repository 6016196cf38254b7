"""A command that is forked is as one that was started: what it prints, its exit code, its input and its environment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.cli.conftest import SECONDS_MAX, Project
from tests.cli.forked import ForkedCommands

SHOWS = "import os, sys\nprint(sys.argv[1:], os.getcwd(), sorted(os.environ), sys.stdin.read(), sys.stdout.isatty())"
HANGS = "import time\ntime.sleep(1000)"


@pytest.fixture
def forked() -> ForkedCommands:
    assert ForkedCommands.running is not None
    return ForkedCommands.running


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["version", "--json"], ["--help"], ["nonsense"], ["tools", "-C", "nowhere", "--json"], ["ps"]], ids=" ".join
)  # fmt: skip
def test_it_prints_and_exits_as_one_that_was_started(
    project: Project, forked: ForkedCommands, words: list[str]
) -> None:
    started = project.run_anew(*words)
    ran = forked.run(words, project.directory, project.environment, b"", SECONDS_MAX)
    assert ran == (started.returncode, started.stdout, started.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["version"], ["--help"], ["nonsense"], ["tools", "-C", "nowhere"]], ids=" ".join
)
def test_on_a_terminal_it_shows_what_one_that_was_started_shows(project: Project, words: list[str]) -> None:
    shown: list[tuple[int, str]] = []
    for forked in (False, True):
        with project.screen(*words, columns=60, env={"TERM": "xterm"}, forked=forked) as screen:
            shown.append((screen.end(), screen.text))
    assert shown[0] == shown[1]
    assert shown[0][1]


def test_words_directory_environment_and_input_are_its_own(project: Project) -> None:
    done = project.run_program(SHOWS, "a", "ü", stdin="typed", env={"MINE": "1"})
    names = sorted({*project.environment, "MINE"})
    assert (done.code, done.out) == (0, f"['a', 'ü'] {project.directory} {names} typed False\n")


def test_an_error_and_an_exit_are_those_of_a_program(project: Project) -> None:
    assert project.run_program("raise SystemExit(7)").code == 7
    done = project.run_program("1 / 0")
    assert (done.code, done.err.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")


@pytest.mark.slow
def test_several_run_at_once_and_one_that_hangs_is_killed(project: Project, forked: ForkedCommands) -> None:
    def run(program: str, seconds: float) -> tuple[int, bytes, bytes]:
        return forked.run([], project.directory, project.environment, b"", seconds, program)

    with ThreadPoolExecutor(2) as threads:
        hangs = threads.submit(run, HANGS, 1)
        assert run("print(1)", SECONDS_MAX) == (0, b"1\n", b"")
        with pytest.raises(TimeoutError):
            hangs.result(SECONDS_MAX)
    assert run("print(2)", SECONDS_MAX) == (0, b"2\n", b"")
