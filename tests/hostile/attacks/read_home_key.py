"""Reads the user's private key."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_home_key(target: dict[str, Any]) -> str:
    return Path(target["home"], ".ssh", "id_ed25519").read_text()
