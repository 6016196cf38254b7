"""A pipe with a name outside, on which whoever opens it hangs."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_fifo_outside(world: dict[str, Any]) -> str:
    os.mkfifo(os.path.join(world["outside"], "planted"))
    return "planted"
