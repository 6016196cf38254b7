"""The machine's network interfaces, by netlink."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def list_interfaces(world: dict[str, Any]) -> str:
    return " ".join(name for _, name in socket.if_nameindex())
