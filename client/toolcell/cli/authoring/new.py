"""`toolcell new KIND`, and `toolcell init` for Python: writes a file with a tool that works, and says how to call it.

It needs no daemon. What is there already stays.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources

from toolcell import _file_kinds
from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.prose import print_prose
from toolcell.cli.adapters.mcp_install.replace import Unchanged, opened
from toolcell.cli.authoring import plugin

FIRST_TOOL = "hello"
PYTHON = '''\
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
FACTORY = '''\
from toolcell import tool


class Greeter:
    """What all tools of this file share, in one worker."""

    def __init__(self, host):
        self.directory = host.directory
        self.greeted = 0

    @tool(name="{name}")
    def greet(self, name: str) -> str:
        """Greet a person.

        Args:
            name: Who is greeted.
        """
        self.greeted += 1
        return f"Hello {{name}}! You are number {{self.greeted}} in {{self.directory.name}}."

    @tool(name="{name}_count")
    def count(self) -> int:
        """Tell how many were greeted."""
        return self.greeted


def tools(host):
    greeter = Greeter(host)
    return [greeter.greet, greeter.count]
'''
FASTMCP = '''\
from fastmcp import Context, FastMCP

mcp = FastMCP("{name}")


@mcp.tool(name="{name}")
async def greet(name: str, ctx: Context) -> str:
    """Greet a person."""
    await ctx.info(f"greeting {{name}}")
    return f"Hello {{name}}!"


if __name__ == "__main__":
    mcp.run()
'''
TYPES = "toolcell.d.ts"
TYPESCRIPT = f"""\
/// <reference path="./{TYPES}" />
import {{{{ tool }}}} from "toolcell"

// {{name}}: the package need not be installed; the file above has its types, for editors.
export default tool({{{{
  description: "Greet a person",
  args: {{{{
    name: {{{{ type: "string", description: "Who is greeted" }}}},
    times: {{{{ type: "integer", description: "How often", default: 1 }}}},
  }}}},
  async execute(args, context) {{{{
    return Array(args.times).fill(`Hello ${{{{args.name}}}}!`).join("\\n")
  }}}},
}}}})
"""


@dataclass(frozen=True, slots=True)
class _Example:
    """What is written for a kind."""

    text: Callable[[str], str]  # the file, by the name that was chosen
    suffix: str = _file_kinds.PYTHON.suffix
    directory: str = os.path.join(".toolcell", "tools")
    name: re.Pattern[str] = re.compile(r"(?!_)(?!.*__)[a-zA-Z_][a-zA-Z0-9_]{0,63}")
    rule: str = "Take up to 64 letters, digits and single _, beginning with a letter"
    another: str = "word_count"
    beside: Callable[[], Mapping[str, str]] = dict  # files of ours in the same directory
    call: Callable[[str, str], tuple[str, str]] = lambda name, path: (name, path)
    """The tool and what the command calls, by the name, and the path of a file that is in no directory of tools."""
    arguments: str = "name=World"


def _types() -> Mapping[str, str]:
    """The types of what a script imports, which may be of an older version there."""
    return {TYPES: resources.files("toolcell.cli.authoring").joinpath(TYPES).read_text(encoding="utf-8")}


def _in_plugin(name: str, path: str) -> tuple[str, str]:
    tool = f"{name}-{plugin.FIRST}"
    return tool, f"{path}:{tool}"


KINDS: Mapping[str, _Example] = {
    "python": _Example(lambda name: PYTHON.format(name=name)),
    "json": _Example(
        plugin.example,
        _file_kinds.PLUGIN.suffix,
        plugin.DIRECTORY,
        re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,40}"),
        "Take up to 40 letters, digits and -, beginning with a letter",
        "my-tools",
        lambda: {plugin.SCHEMA: plugin.schema().decode()},
        _in_plugin,
        plugin.ARGUMENTS,
    ),
    "factory": _Example(lambda name: FACTORY.format(name=name)),
    "fastmcp": _Example(lambda name: FASTMCP.format(name=name)),
    "typescript": _Example(
        lambda name: TYPESCRIPT.format(name=name), _file_kinds.TYPESCRIPT.suffix, beside=_types
    ),
}


def init(context: CommandContext, file: str | None) -> Exit:
    """Write an example in Python, for those who have none yet."""
    return new(context, "python", file, command="toolcell init")


def new(context: CommandContext, kind: str, file: str | None, *, command: str = "") -> Exit:
    """Write an example.

    Args:
        kind: One of `KINDS`.
        file: A path, or a name for the kind's directory; default: "hello".
        command: What was typed, for advice with another name; default: "toolcell new" with the kind.

    Raises:
        Failure: There is no such kind, the name is none, or the file cannot be written.
    """
    example = KINDS.get(kind)
    if example is None:
        raise Misuse(f"There is no kind {kind!r} of tool.", f"Take one of: {', '.join(KINDS)}")
    command = command or f"toolcell new {kind}"
    name = (file or FIRST_TOOL).removesuffix(example.suffix)
    path = (
        f"{name}{example.suffix}"
        if "/" in name
        else os.path.join(example.directory, f"{name}{example.suffix}")
    )
    name = os.path.basename(name)
    if not example.name.fullmatch(name):
        what = f"{name!r} cannot be the name of a {'plugin file' if kind == 'json' else 'tool'}."
        raise Misuse(what, f"{example.rule}: {command} {example.another}")
    seen = os.path.dirname(os.path.abspath(path)) == os.path.abspath(example.directory)
    if seen and (other := _namesake(path)):
        taken = f"{other} has a tool {name} already."
        raise Failure(Exit.USAGE, "exists", taken, f"Name another: {command} NAME")
    _make(path, example.text(name), example.beside(), another=f"{command} NAME")
    tool, elsewhere = example.call(name, os.path.join(".", path))
    call = f"toolcell call {tool if seen else elsewhere} {example.arguments}"
    if context.as_json:
        print(json_text({"path": os.path.abspath(path), "tool": tool, "command": call}))
    else:
        print_prose(f"Wrote {path}. Call it:")
        print(f"  {call}")
    return Exit.OK


def _namesake(path: str) -> str:
    """Return another file in the directory of `path` whose tool has its name, such as hello.py for hello.ts; "" for none."""
    directory, name = os.path.split(path)
    with suppress(OSError):
        for other in sorted(os.listdir(directory)):
            kind = _file_kinds.kind_of(other)
            same = kind is not None and _file_kinds.tool_stem(other) == _file_kinds.tool_stem(name)
            if same and other != name:
                return os.path.join(directory, other)
    return ""


def _make(path: str, text: str, beside: Mapping[str, str], *, another: str) -> None:
    """Write a file that is not there yet, and its directory.

    A repository comes with links of its author's choice, so none is followed in `.toolcell`, nor to what is replaced.

    Args:
        path: Where.
        beside: The texts of files of ours in the same directory, by name; those of an older version are replaced.
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
    except (OSError, Unchanged) as error:
        why = str(error) if isinstance(error, Unchanged) else error.strerror
        raise Misuse(f"{path} cannot be written: {why}.") from error


def _create(place: int, name: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(name, flags, 0o666, dir_fd=place), "w", encoding="utf-8") as created:
        created.write(text)
