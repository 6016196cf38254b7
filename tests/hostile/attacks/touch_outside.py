"""Changes the times of a file outside the project, so that programs build or skip it."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def touch_outside(target: dict[str, Any]) -> str:
    os.utime(os.path.join(target["outside"], "kept"), (1, 1))
    return "touched"
