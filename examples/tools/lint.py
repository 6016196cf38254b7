"""A program as a tool: `context.exec` starts it, and ends it with the call."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

from toolcell import ToolContext, ToolError, tool


def ruff() -> str:
    """The ruff beside this interpreter, else the one on the PATH."""
    beside = Path(sys.executable).with_name("ruff")
    found = str(beside) if beside.exists() else shutil.which("ruff")
    if found is None:
        raise ToolError(
            f"ruff is neither beside {sys.executable} nor on the PATH; install it with: pip install ruff"
        )
    return found


@tool(timeout=60, output="tail")
async def lint(file_path: Annotated[str, "Path to the file to lint"], context: ToolContext) -> str:
    """Run the project linter on a file and return results."""
    done = await context.exec(ruff(), "check", "--no-cache", "--output-format=concise", file_path)
    if done.code > 1:  # 1 says that there are findings, more that there was no linting
        raise ToolError(f"ruff could not run: {done.stderr.strip()}")
    return done.output.strip() or "No problems."
