"""Has another program read the user's private key."""

import signal
import subprocess
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_key_by_child(target: dict[str, Any]) -> str:
    return subprocess.run(
        ["cat", f"{target['home']}/.ssh/id_ed25519"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
