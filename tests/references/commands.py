"""Writes the page of the command for the documentation: `python -m tests.references.commands > docs/commands.md`.

It says what `--help` says, from the same texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import typer
from typer.main import get_command

from toolcell._file_kinds import KINDS, PLUGIN
from toolcell.cli._command_line.help import COMMON_OPTIONS, EXAMPLES, EXIT_CODES, summary

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
HEAD: Final = f"""\
# The command

<!-- Written by `make generate`. Do not edit. -->

`toolcell --help` shows these commands in the terminal, and `toolcell COMMAND --help` one of them.
{DAEMONS}
"""


def _table(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    found = list(rows)
    if found:
        yield (f"| {title} | |" if title else "| | |") + "\n|---|---|"
        yield from (f"| `{_cell(term)}` | {_cell(text)} |" for term, text in found)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _sentences(text: str) -> str:
    return re.sub(r"(?<=[a-z`)]\.) (?=[A-Z`])", "\n", text)


def _parameters(command: Any, words: str) -> Iterator[tuple[str, str]]:
    """Yield the arguments and options of a command that not every command has, each with its help."""
    context = typer.Context(command, info_name=words)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and (
            parameter.param_type_name == "argument" or parameter.name not in COMMON_OPTIONS
        ):
            yield record


def _examples(words: str, below: Iterable[str]) -> list[str]:
    """Return the examples of a command that say more than its heading, the common options and the commands below it."""
    plain = {f"toolcell {words}", f"toolcell {words} --json"}
    others = tuple(f"toolcell {words} {name}" for name in below)
    return [line for line in EXAMPLES[words] if line not in plain and not line.startswith(others)]


def _command(words: str, command: Any) -> Iterator[str]:
    commands = getattr(command, "commands", {})
    yield f"### `toolcell {words}`\n\n{_sentences(summary(command))}\n"
    yield from _table("", _parameters(command, words))
    examples = _examples(words, commands)
    if examples:
        yield "\n".join(["```console", *(f"$ {line}" for line in examples), "```\n"])
    for name, below in commands.items():
        yield from _command(f"{words} {name}", below)


def page() -> str:
    """Return the page, in Markdown."""
    from toolcell.cli._command_line.app import app

    program: Any = get_command(app)
    context = typer.Context(program, info_name="toolcell")
    common = [
        parameter.get_help_record(context)
        for parameter in program.get_params(context)
        if parameter.name in COMMON_OPTIONS
    ]
    parts = [HEAD]
    for heading, names in program.sections().items():
        parts.append(f"## {heading}\n")
        for name in names:
            parts += _command(name, program.commands[name])
    parts += ["## Options of every command\n", *_table("Option", common)]
    parts += [
        "## Exit codes\n",
        *_table("Code", ((str(code.value), text) for code, text in EXIT_CODES.items())),
    ]
    parts += ["## Environment\n", *_table("Variable", ENVIRONMENT.items())]
    parts += ["## Files\n", *_table("File", FILES.items())]
    return "\n".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    print(page(), end="")
