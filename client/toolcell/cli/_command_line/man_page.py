"""Writes the manual page of `toolcell`, from what `--help` shows: `python -m toolcell.cli._command_line.man_page > docs/toolcell.1`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import typer
from typer.main import get_command

from toolcell._file_kinds import KINDS, PLUGIN
from toolcell.cli._command_line.help import COMMON_OPTIONS, EXAMPLES, EXIT_CODES, GROUPS, summary

__all__ = ["DAEMONS", "ENVIRONMENT", "FILES", "man_page", "parameters"]

DAEMONS: Final = (
    "`toolcell call` starts your daemon if none runs; "
    "the other commands that need none use a private one, which ends with them."
)
ENVIRONMENT: Final = {
    "TOOLCELL_SOCKET": "The socket of the daemon; its lock and tokens lie beside it.",
    "TOOLCELL_CONFIG": "The configuration file, in place of those under FILES.",
    "TOOLCELL_PLUGINS": "Directories of plugin files, separated by colons, in place of the user's.",
    "TOOLCELL_DIRECTORY": "The directory whose tools `toolcell mcp` serves without -C.",
    "XDG_CONFIG_HOME": "In place of ~/.config; OpenCode's configuration is below it, too.",
    "XDG_STATE_HOME": "In place of ~/.local/state.",
    "XDG_RUNTIME_DIR": "Its subdirectory toolcell has the socket, unless TOOLCELL_SOCKET names another.",
    "NO_COLOR": "Where it is set, nothing is coloured.",
    "COLUMNS": "The width of the terminal, in place of what it says.",
    "TERM": "Where it is dumb or empty, nothing is coloured.",
    "GRPC_EXPERIMENTS": "Settings of gRPC; where it is set, toolcell sets none of its own.",
}
TOOLS: Final = ", ".join(f"*{kind.suffix}" for kind in KINDS if kind.place == "tools")
FILES: Final = {
    f".toolcell/tools/{TOOLS}": "The tools of a project.",
    f".toolcell/plugins/*{PLUGIN.suffix}": "The plugin files of a project.",
    f"~/.config/toolcell/tools/{TOOLS}": "The tools of the user.",
    "~/.config/toolcell/config.toml": "The configuration of the user, over /etc/toolcell/config.toml.",
    "~/.local/state/toolcell": "Outputs that were truncated, records of calls, and logs.",
}


def roff(text: str) -> str:
    """Return a text as roff shows it literally, in one line."""
    text = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def _definitions(items: Iterator[tuple[str, str]]) -> Iterator[str]:
    for term, text in items:
        yield f".TP\n.B {roff(term)}\n{roff(text)}"


def parameters(command: Any, words: str) -> Iterator[tuple[str, str]]:
    """Yield the arguments and options of a command that not every command has, each with its help."""
    context = typer.Context(command, info_name=words)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and (
            parameter.param_type_name == "argument" or parameter.name not in COMMON_OPTIONS
        ):
            yield record


def _command(words: str, command: Any) -> Iterator[str]:
    yield f".SS {roff(words)}\n{roff(summary(command))}"
    yield from _definitions(parameters(command, words))
    examples = EXAMPLES.get(words, ())
    if examples:
        yield ".PP\n.nf"
        yield from (f".RS\n{roff(example)}\n.RE" for example in examples)
        yield ".fi"
    for name, below in getattr(command, "commands", {}).items():
        yield from _command(f"{words} {name}", below)


def man_page() -> str:
    """Return the page, in the roff of man(7)."""
    from .app import app

    program: Any = get_command(app)
    context = typer.Context(program, info_name="toolcell")
    common = (
        parameter.get_help_record(context)
        for parameter in program.get_params(context)
        if parameter.name in COMMON_OPTIONS
    )
    parts = [
        '.TH TOOLCELL 1 "" "Toolcell" "User commands"',
        ".SH NAME\ntoolcell \\- run the tools of coding agents, each in a separate process",
        ".SH SYNOPSIS\n.B toolcell\n[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]...",
        f".SH DESCRIPTION\n{roff(summary(program))}\n{roff(DAEMONS)}",
    ]
    for group, names in GROUPS.items():
        parts.append(f".SH {roff(group.upper())}")
        for name in names:
            parts += _command(name, program.commands[name])
    parts += [".SH OPTIONS OF EVERY COMMAND", *_definitions(common)]
    parts += [".SH EXIT STATUS", *_definitions((str(code.value), text) for code, text in EXIT_CODES.items())]
    parts += [".SH ENVIRONMENT", *_definitions(iter(ENVIRONMENT.items()))]
    parts += [".SH FILES", *_definitions(iter(FILES.items()))]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    print(man_page(), end="")
