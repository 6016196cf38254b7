"""`toolcell new KIND`: writes a file with a tool that works, and says how to call it; what is there already stays."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources

from toolcell import _file_kinds
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli.authoring import plugin
from toolcell.cli.authoring.init import FIRST_TOOL, init, make, print_written

__all__ = ["new"]

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

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,40}")


def new(context: CommandContext, kind: str, file: str | None) -> Exit:
    """Write an example.

    Args:
        context: The command's options.
        kind: One of `KINDS`.
        file: A path, or a name for the kind's directory; default: "hello".

    Raises:
        Failure: There is no such kind, or the file cannot be written.
    """
    write = KINDS.get(kind)
    if write is None:
        raise Failure(
            Exit.USAGE, "usage", f"There is no kind {kind!r} of tool.", f"Take one of: {', '.join(KINDS)}"
        )
    return write(context, file)


def _json(context: CommandContext, file: str | None) -> Exit:
    path = file or FIRST_TOOL
    path = path if path.endswith(_file_kinds.PLUGIN.suffix) else f"{path}{_file_kinds.PLUGIN.suffix}"
    if "/" not in path:
        path = os.path.join(plugin.DIRECTORY, path)
    name = os.path.basename(path).removesuffix(_file_kinds.PLUGIN.suffix)
    if not _NAME.fullmatch(name):
        raise Failure(
            Exit.USAGE,
            "usage",
            f"{name!r} cannot be the name of a plugin file.",
            "Take up to 40 letters, digits and -, beginning with a letter: toolcell new json my-tools",
        )
    directory = os.path.dirname(os.path.abspath(path))
    make(
        path,
        plugin.example(name),
        {plugin.SCHEMA: plugin.schema().decode()},
        another="toolcell new json NAME",
    )
    seen = directory == os.path.abspath(plugin.DIRECTORY)
    tool = f"{name}-{plugin.FIRST}"
    called = tool if seen else f"{os.path.join('.', path)}:{tool}"
    command = f"toolcell call {called} {plugin.ARGUMENTS}"
    print_written(context, path, tool, command)
    return Exit.OK


def _typescript(context: CommandContext, file: str | None) -> Exit:
    """Write a tool in TypeScript, and beside it the types of what it imports, which may be of an older version there."""
    types = resources.files("toolcell.cli.authoring").joinpath(TYPES).read_text(encoding="utf-8")
    return init(
        context,
        file,
        TYPESCRIPT,
        _file_kinds.TYPESCRIPT.suffix,
        {TYPES: types},
        command="toolcell new typescript",
    )


KINDS: Mapping[str, Callable[[CommandContext, str | None], Exit]] = {
    "python": partial(init, command="toolcell new python"),
    "json": _json,
    "factory": partial(init, text=FACTORY, command="toolcell new factory"),
    "fastmcp": partial(init, text=FASTMCP, command="toolcell new fastmcp"),
    "typescript": _typescript,
}
