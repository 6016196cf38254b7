"""Whether a file is there, and how large it is."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def stat_outside(world: dict[str, Any]) -> str:
    return f"it has {os.stat(os.path.join(world['outside'], 'secret')).st_size} bytes"
