"""Makes a directory outside the project."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_directory_outside(target: dict[str, Any]) -> str:
    os.mkdir(os.path.join(target["outside"], "planted"))
    return "planted"
