"""Writes bytes that are no frame."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_garbage(target: dict[str, Any]) -> str:
    os.write(6, os.urandom(5000))
    return "honest"
