"""Leaves a thread that goes on after the call."""

import signal
import threading
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def leave_thread(target: dict[str, Any]) -> str:
    threading.Thread(target=time.sleep, args=(15,)).start()
    return "done"
