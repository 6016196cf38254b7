"""Types a command line into the user's terminal."""

import fcntl
import os
import signal
import termios
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def type_into_terminal(target: dict[str, Any]) -> str:
    if os.fork() == 0:
        signal.alarm(10)
        status = 1
        try:
            os.setsid()
            terminal = os.open(target["terminal"], os.O_RDWR)  # a session's first terminal becomes its own
            fcntl.ioctl(terminal, termios.TIOCSTI, b"x")
            status = 0
        finally:
            os._exit(status)
    if os.wait()[1]:
        raise PermissionError("it was not typed")
    return "typed"
