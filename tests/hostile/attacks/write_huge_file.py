"""Exceeds its limit of a file's size."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_huge_file(target: dict[str, Any]) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Path("huge").open("wb") as file:
        file.writelines(bytes(2**20) for _ in range(8))
    return "written"
