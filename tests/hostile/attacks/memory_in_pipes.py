"""Fills the kernel's memory through pipes that are never read."""

import fcntl
import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


F_SETPIPE_SZ = 1031


@tool
def memory_in_pipes(target: dict[str, Any]) -> str:
    pipes: list[int] = []
    for _ in range(40):  # a user has 64 MiB of such pages
        _reader, writer = os.pipe()
        fcntl.fcntl(writer, F_SETPIPE_SZ, 2**20)
        os.set_blocking(writer, False)
        pipes.append(os.write(writer, bytes(2**20)))
    Path("survived").write_text(str(sum(pipes)))
    return "it was kept"
