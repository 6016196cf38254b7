"""Takes the priority of the daemon, which has to stay ahead of its cells to stop them."""

import contextlib
import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def raise_priority(target: dict[str, Any]) -> str:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, target["priority"])
    own = os.getpriority(os.PRIO_PROCESS, 0)
    return "it is not behind" if own <= target["priority"] else "it is behind"
