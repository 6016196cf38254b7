"""Gains root's rights from a setuid program."""

import signal
import subprocess
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def gain_by_setuid(target: dict[str, Any]) -> str:
    status = subprocess.run(
        ["cat", "/proc/self/status"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    kept = {line.split(":")[0]: line.split(":")[1].strip() for line in status.splitlines() if ":" in line}
    if kept["NoNewPrivs"] == "1" and int(kept["CapPrm"], 16) == 0:
        raise PermissionError("there are none to be had")
    return "privileges can be had"
