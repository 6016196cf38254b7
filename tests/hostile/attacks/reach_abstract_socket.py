"""A service that listens on a name without a file, where no permission of files holds."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def reach_abstract_socket(world: dict[str, Any]) -> str:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"\0{world['tag']}")
    return "connected"
