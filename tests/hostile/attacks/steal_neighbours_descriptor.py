"""Copies an open descriptor of another worker."""

import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def steal_neighbours_descriptor(target: dict[str, Any]) -> str:
    call("pidfd_getfd", os.pidfd_open(target["neighbour"]), 4, 0)
    return "stolen"
