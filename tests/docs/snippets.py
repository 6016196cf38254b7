"""The Python of the pages, sorted by what it is: a tool file, a program, a test, or a hook."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from .pages import Block, blocks

__all__ = ["RUN_ELSEWHERE", "kind_of", "needs_an_agent", "python", "stem_of"]

AGENT: Final = re.compile(r"^from toolcell\.adapters\.(claude|copilot|opencode) ", re.MULTILINE)
RUN_ELSEWHERE: Final = {
    **{
        f"docs/agents/{name}.md": f"tests/adapters/{name}/test_docs.py"
        for name in ("claude", "copilot", "opencode")
    },
    "docs/agents/another.md": "tests/adapters/test_conforming.py",
    "docs/first-hour.md": "tests/first_hour/test_first_hour.py",
    "docs/operators-hour.md": "tests/systemd/test_operators_hour.py",
}
"""Pages whose Python is run by a test of their own."""


def python() -> list[Block]:
    """Return the Python of all pages."""
    return blocks("python")


def needs_an_agent(block: Block) -> bool:
    """Return whether a snippet imports an adapter whose agent's SDK only the tests of the adapters have."""
    return AGENT.search(block.text) is not None


def kind_of(block: Block) -> str:
    """Return `program`, `test`, `hook`, `tools`, or `comment` for a block that has no code."""
    body = ast.parse(block.text).body
    names = set(_functions(body))
    if not body:
        return "comment"
    if any(isinstance(line, (ast.With, ast.For)) or _calls(line) for line in body):
        return "program"
    if any(name.startswith("test_") for name in names):
        return "test"
    return "hook" if names & {"before", "after", "definition"} else "tools"


def stem_of(block: Block) -> str:
    """Return the name that a tool file with this text has on its page: that of its first tool."""
    decorated = re.search(r"^@tool.*\n(?:async )?def (\w+)", block.text, re.MULTILINE)
    named = re.search(r'"name": "(\w+)"', block.text)
    found = decorated or named
    return found[1] if found else "notes"


def _functions(body: list[ast.stmt]) -> Iterator[str]:
    return (line.name for line in body if isinstance(line, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _calls(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)
