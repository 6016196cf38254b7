"""Loads a module into the kernel."""

import errno
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def load_module(target: dict[str, Any]) -> str:
    try:
        call("finit_module", -1, b"", 0)
    except OSError as error:
        if error.errno != errno.EBADF:  # with the right it would complain of the descriptor
            raise
    return "it may load"
