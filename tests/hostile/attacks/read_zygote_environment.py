"""Reads the environment that its ancestors started with."""

import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_zygote_environment(target: dict[str, Any]) -> str:
    return Path(f"/proc/{os.getppid()}/environ").read_bytes().decode(errors="replace")
