"""The tool of another project, which runs with that one's rights."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def rewrite_other_tool(world: dict[str, Any]) -> str:
    Path(world["outside"], "tools", "innocent.py").write_text("planted")
    return "planted"
