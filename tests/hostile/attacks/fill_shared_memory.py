"""Leaves 48 MiB of the machine's memory in a file that outlives the cell."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def fill_shared_memory(target: dict[str, Any]) -> str:
    with Path("/dev/shm", target["tag"]).open("wb") as file:
        file.writelines(bytes(2**20) for _ in range(48))
    return "filled"
