"""Restarts the machine."""

import errno
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def restart_machine(target: dict[str, Any]) -> str:
    try:
        call("reboot", 0, 0, 0, 0)  # without the magic numbers nothing happens but the question for the right
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return "it may restart"
