"""Opens a packet socket, which receives the packets of all programs."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_packet_socket(target: dict[str, Any]) -> str:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300).close()
    return "it was made"
