"""Loads another kernel."""

import errno
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def load_kernel(target: dict[str, Any]) -> str:
    try:
        call("kexec_load", 0, 1 << 20, 0, 0)
    except OSError as error:
        if error.errno != errno.EINVAL:  # with the right it would complain of the arguments
            raise
    return "it may load"
