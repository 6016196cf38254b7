"""Command lines of Toolcell as its command reads them, without running them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.main import get_command

from toolcell.cli._command_line.app import app

__all__ = ["PROGRAM", "parse", "unknown_options"]

PROGRAM: Final[Any] = get_command(app)


def parse(line: Sequence[str]) -> None:
    """Read a whole command line; an unknown command or option, a wrong value, or a word too many raises."""
    first, *words = line
    assert first == "toolcell"
    context = typer.Context(PROGRAM, info_name=first)
    command: Any = PROGRAM
    while hasattr(command, "commands"):
        # What comes before the name of a command, such as -C DIR, belongs to the group.
        _, rest, _ = command.make_parser(context).parse_args(words)
        if command.invoke_without_command and not rest:
            return
        assert rest, f"no command: {line}"
        name, *words = rest
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
        context = typer.Context(command, info_name=name, parent=context)
    assert command.parse_args(context, words) == []


def unknown_options(line: Sequence[str]) -> list[str]:
    """Return the commands and options of a line that do not exist, where the line has words in place of values."""
    first, *words = line
    assert first == "toolcell"
    command: Any = PROGRAM
    known = _options(command)
    unknown: list[str] = []
    for word in words:
        if word.startswith("-"):
            unknown += [word] if word.partition("=")[0] not in known else []
        elif hasattr(command, "commands"):
            if word not in command.commands:
                # A value of an option of the group is in capitals, as DIR.
                unknown += [word] if not word.isupper() else []
                continue
            command = command.commands[word]
            known |= _options(command)
    return unknown


def _options(command: Any) -> set[str]:
    return {"--help"} | {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
