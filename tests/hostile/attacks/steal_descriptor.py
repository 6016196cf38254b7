"""An open file of the daemon, as a descriptor."""

import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def steal_descriptor(world: dict[str, Any]) -> str:
    call("pidfd_getfd", os.pidfd_open(world["daemon"]), 1, 0)
    return "stolen"
