"""Kills another process through a pidfd."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_by_pidfd(target: dict[str, Any]) -> str:
    signal.pidfd_send_signal(os.pidfd_open(target["victim"]), signal.SIGKILL)
    return "sent"
