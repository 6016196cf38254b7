"""The private key of the person who runs the daemon."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_home_key(world: dict[str, Any]) -> str:
    return Path(world["home"], ".ssh", "id_ed25519").read_text()
