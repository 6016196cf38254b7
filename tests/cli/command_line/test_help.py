"""What `--help` and docs/commands.md say: every command, in a section, with examples that are command lines of Toolcell."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command_lines import PROGRAM, parse
from tests.references.commands import ENVIRONMENT, page

from toolcell._version import VERSION
from toolcell.cli._command_line.help import EXAMPLES, EXIT_CODES
from toolcell.cli._ui.exit_codes import Exit

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"


def commands(command: Any = PROGRAM, words: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all commands that are not hidden, by their words after `toolcell`."""
    for name, below in getattr(command, "commands", {}).items():
        yield f"{words} {name}".strip(), below
        yield from commands(below, f"{words} {name}".strip())


def shown(*words: str, columns: int = 80) -> str:
    environment = {"COLUMNS": str(columns), "PATH": "/usr/bin:/bin"}
    line = [sys.executable, "-m", "toolcell.cli", *words]
    return subprocess.run(
        line, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_every_command_is_in_a_section_and_has_examples() -> None:
    assert "Commands" not in PROGRAM.sections()  # the heading of what is in none
    assert set(EXAMPLES) == {words for words, _ in commands()}
    assert set(EXIT_CODES) == set(Exit)


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_a_command_line(line: str) -> None:
    line = line.partition(" | ")[0].partition(" > ")[0]
    parse(shlex.split(line.removeprefix('eval "$(').removesuffix(')"')))


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [(), ("call",), ("mcp", "install"), ("explain",)], ids=" ".join)
def test_no_line_is_longer_than_the_terminal_and_no_sentence_is_cut(
    words: tuple[str, ...], columns: int
) -> None:
    text = shown(*words, "--help", columns=columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "..." not in text.replace("[ARGS]...", "")


def test_the_version_is_an_option_too() -> None:
    assert shown("--version") == shown("version") == f"toolcell {VERSION}\n"


def test_the_page_of_the_command_is_that_of_the_command() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make generate"


READ = re.compile(r"(?:environ(?:ment)?(?:\.get\(|\[)|_absolute\()\"([A-Z_]+)\"|\"(TOOLCELL_[A-Z_]+)\"")
OF_OTHERS = {
    "PATH": "of every program",
    "HOME": "of every program",
    "TMPDIR": "set for the tool in its cell",
    "NODE_PATH": "set for the tool in its cell",
    "VIRTUAL_ENV": "set for the tool in its cell",
    "TOOLCELL_BUILD_PARTIAL": "read by the build of the package",
    "PYTHONPATH": "set for a build of the package",
    "CLINE_DATA_DIR": "set for Cline, on the page of hosts",
    "CLINE_DIR": "the same",
    "CLINE_MCP_SETTINGS_PATH": "the same",
    "RAY_ADDRESS": "of Ray, whose cluster toolcell cluster up takes",
    "NOTIFY_SOCKET": "set by systemd",
    "WATCHDOG_PID": "set by systemd",
    "WATCHDOG_USEC": "set by systemd",
    "JOURNAL_STREAM": "set by systemd",
    "COMP_WORDS": "set by a shell that completes",
    "COMP_CWORD": "set by a shell that completes",
    "_TYPER_COMPLETE_ARGS": "set by the script of a shell that completes",
    "_TYPER_COMPLETE_FISH_ACTION": "set by the script of a shell that completes",
}


def test_every_variable_that_the_code_reads_is_on_the_page_of_the_command() -> None:
    root = Path(__file__).parents[3]
    sources = [path for place in ("client", "daemon") for path in sorted((root / place).rglob("*.py"))]
    read = {name for path in sources for pair in READ.findall(path.read_text()) for name in pair if name}
    assert {"TOOLCELL_SOCKET", "NO_COLOR", "XDG_STATE_HOME"} <= read
    assert read - set(OF_OTHERS) - set(ENVIRONMENT) == set()
