"""Lists the descriptors that it inherited."""

import contextlib
import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def list_descriptors(target: dict[str, Any]) -> str:
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return " ".join(found)
