"""Makes another user's private file readable for all."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def chmod_outside(target: dict[str, Any]) -> str:
    os.chmod(os.path.join(target["outside"], "secret"), 0o777)
    return "opened"
