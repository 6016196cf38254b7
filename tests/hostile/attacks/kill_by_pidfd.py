"""Somebody's process, ended by a descriptor of it."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def kill_by_pidfd(world: dict[str, Any]) -> str:
    signal.pidfd_send_signal(os.pidfd_open(world["victim"]), signal.SIGKILL)
    return "sent"
