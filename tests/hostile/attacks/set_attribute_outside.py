"""Sets an extended attribute on a file outside the project."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def set_attribute_outside(target: dict[str, Any]) -> str:
    os.setxattr(os.path.join(target["outside"], "kept"), "user.planted", b"planted")
    return "set"
