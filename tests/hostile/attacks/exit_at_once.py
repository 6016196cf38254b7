"""Exits with status 0 in the middle of a call."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def exit_at_once(target: dict[str, Any]) -> str:
    os._exit(0)
