"""Another time on a file outside, to have programs build or skip it."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def touch_outside(world: dict[str, Any]) -> str:
    os.utime(os.path.join(world["outside"], "kept"), (1, 1))
    return "touched"
