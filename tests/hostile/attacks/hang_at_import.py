"""Hangs while it is described."""

import signal
import time
from typing import Any

from toolcell import tool

signal.alarm(3)


time.sleep(10)


@tool
def hang_at_import(target: dict[str, Any]) -> str:
    return "unreachable"
