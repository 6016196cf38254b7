"""What a person does in the first hour, step by step; each step is run, and fails here where it would fail for them."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

from tests.wheels import ROOT, build_wheel

from .newcomer import Newcomer, newcomer

__all__ = ["plain", "walk"]

PRICE = '''\
import json
from urllib.request import urlopen

from toolcell import tool


@tool(network=["127.0.0.1:8080"])
def price(sku: str) -> int:
    """Look up the price of an article, in cents.

    Args:
        sku: The number of the article.
    """
    with urlopen(f"http://127.0.0.1:8080/{sku}") as answer:
        return int(json.load(answer)["cents"])
'''
WORDS = '''\
from collections import Counter
from pathlib import Path

from toolcell import tool


@tool
def words(path: str, most: int = 3) -> dict[str, int]:
    """Count the words of a file.

    Args:
        path: The file, relative to the project.
        most: How many words, the most frequent first.
    """
    return dict(Counter(Path(path).read_text().split()).most_common(most))
'''
STUCK = '''\
import subprocess

from toolcell import tool


@tool(timeout=1)
def stuck() -> None:
    """Wait forever."""
    subprocess.run(["sleep", "infinity"])
'''
DURATION = '''\
# /// script
# requires-python = ">=3.11"
# dependencies = ["humanize>=4"]
# ///
import humanize

from toolcell import tool


@tool
def duration(seconds: int) -> str:
    """Say a duration in words."""
    return str(humanize.naturaldelta(seconds))
'''
CLIENT = """\
import asyncio
import json
import os
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.types import TextContent


async def main() -> None:
    entry = json.loads((Path.home() / ".claude.json").read_text())["mcpServers"]["toolcell"]
    server = StdioServerParameters(command=entry["command"], args=entry["args"], env=dict(os.environ))
    async with Client(server) as client:
        print(*sorted(tool.name for tool in (await client.list_tools()).tools))
        result = await client.call_tool("words", {"path": "notes.txt", "most": 1})
        for block in result.content:
            if isinstance(block, TextContent):
                print(block.text)


asyncio.run(main())
"""
CLAUDE = """\
import asyncio

from toolcell.adapters.claude import ClaudeAdapter, options


async def main() -> None:
    async with ClaudeAdapter.connect(directory=".") as adapter:
        chosen = options(adapter)
        print(*chosen.allowed_tools)


asyncio.run(main())
"""
COPILOT = """\
import asyncio

from toolcell.adapters.copilot import CopilotAdapter


async def main() -> None:
    async with CopilotAdapter.connect(directory=".") as adapter:
        print(*sorted(tool.name for tool in adapter.tools()))


asyncio.run(main())
"""
HOSTS = {
    "claude": ".claude.json",
    "copilot": ".copilot/mcp-config.json",
    "opencode": ".config/opencode/opencode.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
}
TIMES = re.compile(r"\b\d+(\.\d+)? (ms|s)\b")


def plain(page: str) -> str:
    """Return a page without its times, which are others in each run."""
    return TIMES.sub("…", page)


def walk() -> tuple[str, float]:
    """Do all steps; return the page, and the seconds that they took."""
    began = time.monotonic()
    with newcomer() as person:
        wheel = build_wheel(person.home)
        person.says(
            "# The first hour",
            "",
            "<!-- Written by `make first-hour`, which does all of this in an empty home. Do not edit. -->",
            "",
            "From an installation to tools that each agent can call, as it was done in an empty home directory.",
            "Everything after a `$` was typed there, and what follows was printed.",
        )
        for step in (_install, _first, _own, _mistake, _stuck, _network, _packages, _hosts, _sdks):
            step(person, wheel)
        page = "\n".join(person.page)
    seconds = time.monotonic() - began
    return (
        f"{page}The machine needed {seconds:.0f} s for all of it, with the packages from their registry.\n",
        seconds,
    )


def _install(person: Newcomer, wheel: Path) -> None:
    person.says(
        "## Install",
        "",
        "A virtual environment is active; `pipx` and `uv tool install` make one by themselves.",
    )
    person.types(f"pip install --quiet './{wheel.name}[mcp]'", "toolcell version")
    found = json.loads(
        person.run_python("import json, sys, toolcell; print(json.dumps([toolcell.__file__, *sys.path]))")
    )
    assert not [path for path in found if Path(path).is_relative_to(ROOT)], found


def _first(person: Newcomer, wheel: Path) -> None:
    person.says("## A first tool", "", "`toolcell init` writes one that works.")
    person.types("mkdir shop", "cd shop", "toolcell init", "toolcell tools", "toolcell call hello name=Ada")


def _own(person: Newcomer, wheel: Path) -> None:
    person.says(
        "## One of your own", "", "The parameters are type hints, the descriptions come from the docstring."
    )
    person.writes(".toolcell/tools/words.py", WORDS)
    person.types("echo to be or not to be >notes.txt", "toolcell call words path=notes.txt most=2")
    person.says("An argument that is wrong does not reach the function; the model reads the same message.")
    said = person.types("toolcell call words file=notes.txt", code=2)
    assert "there are: path, most" in said, said


def _mistake(person: Newcomer, wheel: Path) -> None:
    person.says(
        "## A mistake",
        "",
        "A file that cannot be loaded takes no other tool with it, and `toolcell check` says why.",
    )
    path = ".toolcell/tools/words.py"
    said = person.types(f"sed -i 's/most: int/most: itn/' {path}", "toolcell check", code=1)
    assert "line 8" in said, said
    person.says("Line 8 it is.")
    person.types(f"sed -i 's/most: itn/most: int/' {path}", "toolcell check")


def _stuck(person: Newcomer, wheel: Path) -> None:
    person.says("## A tool that does not return")
    person.writes(".toolcell/tools/stuck.py", STUCK)
    said = person.types("toolcell call stuck", code=124)
    assert "timed_out" in said, said
    person.says("Its `sleep` is gone as well; Esc in an agent does the same.")


def _network(person: Newcomer, wheel: Path) -> None:
    person.says(
        "## The network",
        "",
        "A tool says which hosts it needs.",
        "Here a service on port 8080 has the prices.",
    )
    person.writes(".toolcell/tools/price.py", PRICE)
    said = person.types("toolcell call price sku=ABC-001", code=3)
    assert "toolcell trust" in said, said
    person.says(
        "What it says is the way on: `toolcell trust` shows what the project's tools ask for, and grants it."
    )
    person.types("toolcell trust --yes", "toolcell call price sku=ABC-001")


def _packages(person: Newcomer, wheel: Path) -> None:
    person.says(
        "## A package", "", "A script block says what a file needs; `uv` installs it before the first call."
    )
    person.writes(".toolcell/tools/duration.py", DURATION)
    said = person.types("toolcell call duration seconds=7200", code=3)
    assert "toolcell trust" in said, said
    person.says("The file is new, so it is granted again.")
    person.types("toolcell trust --yes")
    said = person.types("toolcell call duration seconds=7200", code=3)
    assert "pip install uv" in said, said
    person.says(
        "The message has what is missing, and how to get it.",
        "What the tool asks for can be shown only then.",
    )
    person.types("pip install --quiet uv", "toolcell trust --yes", "toolcell call duration seconds=7200")


def _hosts(person: Newcomer, wheel: Path) -> None:
    person.says(
        "## In your agent", "", "Claude Code, Copilot CLI, OpenCode, Cursor and VS Code get an entry each."
    )
    person.types(*(f"toolcell mcp install {host} --write" for host in HOSTS))
    for host, path in HOSTS.items():
        assert "toolcell" in (person.home / path).read_text(), host
    person.says(
        "What they start is a bridge to the same daemon.", "Any MCP client can ask it, such as this one:"
    )
    person.writes("client.py", CLIENT)
    said = person.types("python client.py")
    expected = ["duration hello price stuck toolcell_read_output words", '{"to":2}']
    assert said.splitlines() == expected, said


def _sdks(person: Newcomer, wheel: Path) -> None:
    person.says(
        "## In an application of your own",
        "",
        "The adapters are extras; the pages of [Claude](agents/claude.md) and [Copilot](agents/copilot.md) have a program each.",
    )
    person.types(f"pip install --quiet '../{wheel.name}[claude,copilot,opencode]'", quiet=True)
    assert person.run_python(CLAUDE) == "mcp__toolcell\n"
    assert person.run_python(COPILOT).split()[0] == "duration"
    person.says("OpenCode loads a plugin, which the wheel has.")
    person.types("toolcell opencode install")
    plugin = person.run_python("from toolcell.adapters.opencode import plugin_path; print(plugin_path())")
    assert Path(plugin.strip()).exists()
    loader = (person.home / ".config/opencode/plugins/toolcell.js").read_text()
    assert f'"{person.home}/venv/bin/toolcell"' in loader  # the next shell may not have the environment
    person.says(
        "How to go on: [your first tool in ten minutes](tutorial.md), and the pages of the [agents](agents/mcp.md)."
    )
    shutil.rmtree(person.directory)
