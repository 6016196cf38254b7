"""Lists the command lines of the machine's programs."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def find_commands(target: dict[str, Any]) -> str:
    told: list[str] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            told.append(Path("/proc", name, "cmdline").read_bytes().decode(errors="replace"))
    return " ".join(told)[-40_000:]
