"""Runs a program as a tool: `context.exec` starts it, and ends it with the call."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

from toolcell import ToolContext, ToolError, tool


def ruff() -> str:
    """Return the path of ruff: next to this interpreter, else on the PATH. Raises ToolError if there is none."""
    sibling = Path(sys.executable).with_name("ruff")
    found = str(sibling) if sibling.exists() else shutil.which("ruff")
    if found is None:
        raise ToolError(
            f"ruff is neither next to {sys.executable} nor on the PATH; install it with: pip install ruff"
        )
    return found


@tool(timeout=60, output="tail")
async def lint(file_path: Annotated[str, "Path to the file to lint"], context: ToolContext) -> str:
    """Run the project linter on a file and return results."""
    done = await context.exec(ruff(), "check", "--no-cache", "--output-format=concise", file_path)
    if done.code > 1:  # 1 means findings; a higher code means that ruff did not run
        raise ToolError(f"ruff could not run: {done.stderr.strip()}")
    return done.output.strip() or "No problems."
