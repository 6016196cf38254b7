"""Runs a program from the user's home."""

import signal
import subprocess
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def run_program_outside(target: dict[str, Any]) -> str:
    return subprocess.run(
        [f"{target['home']}/bin/program"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
