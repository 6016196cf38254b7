"""A new file where the project does not reach."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_outside(world: dict[str, Any]) -> str:
    Path(world["outside"], "planted").write_text("planted")
    return "planted"
