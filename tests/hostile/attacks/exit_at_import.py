"""Exits while it is described."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


os._exit(0)


@tool
def exit_at_import(target: dict[str, Any]) -> str:
    return "unreachable"
