"""Replaces standard output with nothing."""

import signal
import sys
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def replace_output(target: dict[str, Any]) -> str:
    sys.stdout = sys.stderr = None
    return "replaced"
