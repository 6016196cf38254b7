"""Kills another process through the owner of a socket's signals."""

import fcntl
import os
import signal
import socket
import time
from typing import Any

from toolcell import tool

signal.alarm(20)


F_SETSIG = 10


@tool
def kill_by_owner(target: dict[str, Any]) -> str:
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, target["victim"])
    fcntl.fcntl(ours, F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    theirs.send(b"now")
    time.sleep(0.2)
    return "sent"
