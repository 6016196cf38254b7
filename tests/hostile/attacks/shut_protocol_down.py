"""Shuts its protocol channel down and goes on."""

import os
import signal
import socket
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def shut_protocol_down(target: dict[str, Any]) -> str:
    socket.socket(fileno=os.dup(4)).shutdown(socket.SHUT_RDWR)
    time.sleep(10)
    return "honest"
