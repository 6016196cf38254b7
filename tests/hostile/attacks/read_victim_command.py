"""The command line of another program, where people put passwords."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_victim_command(world: dict[str, Any]) -> str:
    return Path(f"/proc/{world['victim']}/cmdline").read_bytes().decode(errors="replace")
