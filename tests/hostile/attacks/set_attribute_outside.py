"""An extended attribute on a file outside."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def set_attribute_outside(world: dict[str, Any]) -> str:
    os.setxattr(os.path.join(world["outside"], "kept"), "user.planted", b"planted")
    return "set"
