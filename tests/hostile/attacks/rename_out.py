"""Moves a file out of the project."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def rename_out(target: dict[str, Any]) -> str:
    os.rename("own", os.path.join(target["outside"], "planted"))
    return "planted"
