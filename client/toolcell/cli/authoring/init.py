"""`toolcell init`: writes a first tool; it needs no daemon, and loads nothing of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

from toolcell._file_kinds import PYTHON
from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.tables import print_prose
from toolcell.cli.adapters.mcp_install.replace import Kept, opened

__all__ = ["init", "make", "print_written"]

TOOLS_DIRECTORY = os.path.join(".toolcell", "tools")
FIRST_TOOL = "hello"
NOTHING: Mapping[str, str] = MappingProxyType({})

_TOOL = '''\
from toolcell import tool


@tool
def {name}(name: str, times: int = 1) -> str:
    """Greet a person.

    Args:
        name: Who is greeted.
        times: How often.
    """
    return "\\n".join([f"Hello {{name}}!"] * times)
'''


def init(
    context: CommandContext,
    file: str | None,
    text: str = _TOOL,
    suffix: str = PYTHON.suffix,
    beside: Mapping[str, str] = NOTHING,
    command: str = "toolcell init",
) -> Exit:
    """Write a tool that works, and print how to call it; existing files are kept.

    Args:
        context: The command's options.
        file: A path, or a name for the project's directory of tools; default: "hello".
        text: The file, with {name} for the tool's name, which takes an argument `name`; default: a function.
        suffix: What the name of the file ends with; default: ".py".
        beside: As in `make`.
        command: What was typed, for advice with another name; default: "toolcell init".

    Raises:
        Failure: The name is none, or the file cannot be written.
    """
    path = file or FIRST_TOOL
    path = path if path.endswith(suffix) else f"{path}{suffix}"
    if "/" not in path:
        path = os.path.join(TOOLS_DIRECTORY, path)
    name = os.path.basename(path).removesuffix(suffix)
    if (
        not name.isidentifier()
        or not name.isascii()
        or "__" in name
        or name.startswith("_")
        or len(name) > 64
    ):
        raise Failure(
            Exit.USAGE,
            "usage",
            f"{name!r} cannot be the name of a tool.",
            f"Take up to 64 letters, digits and single _, beginning with a letter: {command} word_count",
        )
    make(path, text.format(name=name), beside, another=f"{command} NAME")
    seen = os.path.dirname(os.path.abspath(path)) == os.path.abspath(TOOLS_DIRECTORY)
    call = f"toolcell call {name if seen else os.path.join('.', path)} name=World"
    print_written(context, path, name, call)
    return Exit.OK


def print_written(context: CommandContext, path: str, tool: str, command: str) -> None:
    """Print what was written, and the command that calls it."""
    if context.as_json:
        print(json_text({"path": os.path.abspath(path), "tool": tool, "command": command}))
    else:
        print_prose(f"Wrote {path}. Call it:")
        print(f"  {command}")


def make(path: str, text: str, beside: Mapping[str, str] = NOTHING, *, another: str) -> None:
    """Write a file that is not there yet, and its directory.

    A repository comes with links of its author's choice, so none is followed in `.toolcell`, nor to what is replaced.

    Args:
        path: Where.
        text: Its text.
        beside: The texts of files of ours in the same directory, by name; those of an older version are replaced.
            Default: none.
        another: The command for another name.

    Raises:
        Failure: It is there already, or cannot be written.
    """
    directory, name = os.path.split(os.path.abspath(path))
    project = os.getcwd() if path.startswith(f".toolcell{os.sep}") else None
    try:
        if project is None:
            os.makedirs(directory, exist_ok=True)
        with opened(directory, make=project is not None, project=project) as place:
            _create(place, name, text)
            for other, content in beside.items():
                with suppress(FileNotFoundError):
                    os.unlink(other, dir_fd=place)  # a link itself, and not what it leads to
                _create(place, other, content)
    except FileExistsError:
        taken = f"{path} is there already, and stays as it is."
        raise Failure(Exit.USAGE, "exists", taken, f"Name another: {another}") from None
    except (OSError, Kept) as error:
        why = str(error) if isinstance(error, Kept) else error.strerror
        raise Failure(Exit.USAGE, "usage", f"{path} cannot be written: {why}.") from error


def _create(place: int, name: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(name, flags, 0o666, dir_fd=place), "w", encoding="utf-8") as created:
        created.write(text)
