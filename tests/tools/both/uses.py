"""Uses too much of one thing, within bounds: 800 MiB, 100 processes, 20 seconds."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time

from toolcell import tool

MIB = 2**20


@tool
def uses(what: str) -> str:
    """Use too much of that."""
    held: list[object] = []
    until = time.monotonic() + 20
    if what == "memory":
        for _ in range(80):
            held.append(bytearray(os.urandom(1) * 10 * MIB))
            time.sleep(0.01)
    elif what == "processes":
        for _ in range(100):
            held.append(subprocess.Popen(["sleep", "20"]))
            time.sleep(0.005)
    while what in ("memory", "processes", "time") and time.monotonic() < until:
        time.sleep(0.1)
    while what == "cpu" and time.monotonic() < until:
        pass
    if what == "file":
        with open("large", "wb") as file:
            for _ in range(40):
                file.write(bytes(MIB))
                file.flush()
    elif what == "disk":
        with tempfile.TemporaryFile() as file:  # gone before anything can ask how full the disk is
            file.write(bytes(40 * MIB))
    return "survived"
