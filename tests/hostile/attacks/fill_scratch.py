"""Exceeds its disk limit with many files."""

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def fill_scratch(target: dict[str, Any]) -> str:
    for number in range(48):
        with open(os.path.join(tempfile.gettempdir(), f"{target['tag']}-{number}"), "wb") as file:
            file.write(bytes(2**20))
    time.sleep(3)
    Path("survived").touch()
    for number in range(48):
        os.unlink(os.path.join(tempfile.gettempdir(), f"{target['tag']}-{number}"))
    return "it was kept"
