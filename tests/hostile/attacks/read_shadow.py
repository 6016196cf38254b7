"""Reads the machine's password hashes."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_shadow(target: dict[str, Any]) -> str:
    return f"it holds {len(Path('/etc/shadow').read_bytes())} bytes"
