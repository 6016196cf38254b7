"""Writes the page of the command for the documentation: `python -m toolcell.cli._command_line.page > docs/commands.md`.

It says what `--help` and the manual page say, from the same texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import typer
from typer.main import get_command

from toolcell.cli._command_line.help import COMMON_OPTIONS, EXAMPLES, EXIT_CODES, GROUPS, summary
from toolcell.cli._command_line.man_page import DAEMONS, ENVIRONMENT, FILES, parameters

__all__ = ["page"]

HEAD: Final = f"""\
# The command

<!-- Written by `make generate`. Do not edit. -->

`toolcell --help` shows these commands in the terminal, `toolcell COMMAND --help` one of them, and `man toolcell` all of this.
{DAEMONS}
"""


def _table(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    found = list(rows)
    if found:
        yield f"| {title} | |\n|---|---|"
        yield from (f"| `{_cell(term)}` | {_cell(text)} |" for term, text in found)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _sentences(text: str) -> str:
    return re.sub(r"(?<=[a-z`)]\.) (?=[A-Z`])", "\n", text)


def _command(words: str, command: Any) -> Iterator[str]:
    yield f"### `toolcell {words}`\n\n{_sentences(summary(command))}\n"
    yield from _table("Argument or option", parameters(command, words))
    if words in EXAMPLES:
        yield "\n".join(["```console", *(f"$ {line}" for line in EXAMPLES[words]), "```\n"])
    for name, below in getattr(command, "commands", {}).items():
        yield from _command(f"{words} {name}", below)


def page() -> str:
    """Return the page, in Markdown."""
    from .app import app

    program: Any = get_command(app)
    context = typer.Context(program, info_name="toolcell")
    common = [
        parameter.get_help_record(context)
        for parameter in program.get_params(context)
        if parameter.name in COMMON_OPTIONS
    ]
    parts = [HEAD]
    for group, names in GROUPS.items():
        parts.append(f"## {group}\n")
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
