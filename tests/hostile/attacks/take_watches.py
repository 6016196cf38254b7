"""Takes the file system watches (inotify instances) that all programs of the user share."""

import os
import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def take_watches(target: dict[str, Any]) -> str:
    taken: list[int] = []
    try:
        while len(taken) < 100:
            taken.append(checked(libc.inotify_init1(os.O_CLOEXEC)))
    finally:
        for number in taken:
            os.close(number)
    return f"it has {len(taken)}"
