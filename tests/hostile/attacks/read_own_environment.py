"""Reads a secret of the daemon's environment in its own."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_own_environment(target: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in os.environ.items())
