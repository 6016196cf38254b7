"""`toolcell init`, `serve` and `version`: what needs no daemon, and therefore loads nothing of one."""

from __future__ import annotations

import os
import sys

from toolcell._printable import json_text
from toolcell._version import VERSION
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure

__all__ = ["init", "serve", "version"]

TOOLS_DIRECTORY = os.path.join(".toolcell", "tools")
FIRST_TOOL = "hello"

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


def init(context: CommandContext, file: str | None, text: str = _TOOL, suffix: str = ".py") -> Exit:
    """Write a tool that works, and say how to call it; what is there already stays.

    Args:
        context: The command's options.
        file: A path, or a name for the project's directory of tools; default: "hello".
        text: The file, with {name} for the tool's name, which takes an argument `name`; default: a function.
        suffix: What the name of the file ends with; default: ".py".

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
            "Take up to 64 letters, digits and single _, beginning with a letter: toolcell init word_count",
        )
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "x", encoding="utf-8") as created:
            created.write(text.format(name=name))
    except FileExistsError:
        taken = f"{path} is there already, and stays as it is."
        raise Failure(Exit.USAGE, "exists", taken, "Name another: toolcell init NAME") from None
    except OSError as error:
        raise Failure(Exit.USAGE, "usage", f"{path} cannot be written: {error.strerror}.") from error
    seen = os.path.dirname(os.path.abspath(path)) == os.path.abspath(TOOLS_DIRECTORY)
    command = f"toolcell call {name if seen else os.path.join('.', path)} name=World"
    if context.as_json:
        print(json_text({"path": os.path.abspath(path), "tool": name, "command": command}))
    else:
        print(f"Wrote {path}. Call it:\n  {command}")
    return Exit.OK


def serve(
    context: CommandContext,
    state: str | None,
    config: str | None,
    idle_exit_seconds: float | None,
    *,
    detach: bool,
) -> Exit:
    """Become the daemon, or with `detach` its starter; does not return."""
    options = {
        "--socket": context.socket,
        "--state": state,
        "--config": config,
        "--idle-exit": idle_exit_seconds,
    }
    given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    if detach:
        given.append("--detach")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "toolcelld", *given])


def version(context: CommandContext) -> Exit:
    """Which Toolcell this is."""
    print(json_text({"version": VERSION}) if context.as_json else f"toolcell {VERSION}")
    return Exit.OK
