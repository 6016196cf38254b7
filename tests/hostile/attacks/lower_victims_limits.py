"""A neighbour that cannot open a file any more."""

import resource
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def lower_victims_limits(world: dict[str, Any]) -> str:
    resource.prlimit(world["victim"], resource.RLIMIT_NOFILE, (3, 3))
    return "lowered"
