"""Reads the environment of another program of the same user."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_victim_environment(target: dict[str, Any]) -> str:
    return Path(f"/proc/{target['victim']}/environ").read_bytes().decode(errors="replace")
