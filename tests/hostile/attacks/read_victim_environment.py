"""The environment of another program of the same person."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_victim_environment(world: dict[str, Any]) -> str:
    return Path(f"/proc/{world['victim']}/environ").read_bytes().decode(errors="replace")
