"""Exceeds its limit of processes with threads."""

import signal
import threading
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def thread_bomb(target: dict[str, Any]) -> str:
    enough = threading.Event()
    for _ in range(100):
        threading.Thread(target=enough.wait, args=(5,), daemon=True).start()

    time.sleep(2)
    Path("survived").touch()
    return "it was kept"
