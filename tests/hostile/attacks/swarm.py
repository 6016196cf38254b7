"""Forks in every process, each in a session and so a share of the processors of its own, to outrun its limits."""

import mmap
import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)

MOST = 1500
SECONDS = 5


@tool
def swarm(target: dict[str, Any]) -> str:
    counted = mmap.mmap(-1, mmap.PAGESIZE * 2)  # a byte for each process; its own pages are not to be copied
    end = time.monotonic() + SECONDS

    def breed(number: int) -> None:
        signal.alarm(SECONDS * 2)
        os.setsid()
        counted[number] = 1
        while time.monotonic() < end:
            for child in (2 * number + 1, 2 * number + 2):
                if child < MOST and not counted[child]:
                    try:
                        if os.fork() == 0:
                            signal.alarm(SECONDS * 2)
                            breed(child)
                    except OSError:
                        continue
        os._exit(0)

    if os.fork() == 0:
        signal.alarm(SECONDS * 2)
        breed(0)
    while time.monotonic() < end:
        time.sleep(0.01)
        if sum(counted[:MOST]) >= 1000:
            Path("survived").touch()
            return "a thousand"
    return f"{sum(counted[:MOST])} of them"
