"""Copies an open descriptor of the daemon."""

import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def steal_descriptor(target: dict[str, Any]) -> str:
    call("pidfd_getfd", os.pidfd_open(target["daemon"]), 1, 0)
    return "stolen"
