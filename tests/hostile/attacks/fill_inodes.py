"""Exceeds its disk limit with empty files, each of which takes a kilobyte of kernel memory in a file system of memory."""

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def fill_inodes(target: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as directory:
        for number in range(6_000):
            os.close(os.open(f"{directory}/{number}", os.O_CREAT | os.O_WRONLY))
        time.sleep(2)
        Path("survived").touch()
    return "they were kept"
