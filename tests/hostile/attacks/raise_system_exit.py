"""Raises SystemExit in a call."""

import signal
import sys
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def raise_system_exit(target: dict[str, Any]) -> str:
    sys.exit(0)
