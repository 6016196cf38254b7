"""Leaves a program that ignores the end of its session."""

import signal
import subprocess
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def leave_nohup(target: dict[str, Any]) -> str:
    subprocess.Popen(
        ["nohup", "sleep", "15"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    return "it lives"
