"""Writes its memory, with all that it was given, to a core file in the project."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def dump_core(target: dict[str, Any]) -> str:
    os.abort()
