"""More memory than it was given, in files without a name, which are nobody's memory."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def memory_in_files(world: dict[str, Any]) -> str:
    file = os.memfd_create("store")
    for _ in range(300):
        os.write(file, bytes(2**20))

    time.sleep(2)
    Path("survived").touch()
    return "it was kept"
