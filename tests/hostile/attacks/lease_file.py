"""Leases a file that it may only read, so that every open of it for writing waits."""

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def lease_file(target: dict[str, Any]) -> str:
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    with open(__file__) as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        Path("leased").touch()
        deadline = time.monotonic() + 5
        while not os.path.exists("seen") and time.monotonic() < deadline:
            time.sleep(0.01)
    return "it was leased"
