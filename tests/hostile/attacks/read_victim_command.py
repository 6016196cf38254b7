"""Reads the command line of another program, where passwords may be."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_victim_command(target: dict[str, Any]) -> str:
    return Path(f"/proc/{target['victim']}/cmdline").read_bytes().decode(errors="replace")
