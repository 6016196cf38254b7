"""Creates a file outside the project."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_outside(target: dict[str, Any]) -> str:
    Path(target["outside"], "planted").write_text("planted")
    return "planted"
