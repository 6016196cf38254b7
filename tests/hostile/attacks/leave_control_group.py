"""Another control group, where the limits of its own do not hold."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def leave_control_group(world: dict[str, Any]) -> str:
    with open(os.path.join(world["groups"], "cgroup.procs"), "w") as members:
        members.write("0")
    return "it moved"
