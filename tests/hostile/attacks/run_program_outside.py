"""A program from the person's home, run by the tool."""

import signal
import subprocess
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def run_program_outside(world: dict[str, Any]) -> str:
    return subprocess.run(
        [f"{world['home']}/bin/program"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
