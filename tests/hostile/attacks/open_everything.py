"""Exceeds its limit of open files."""

import contextlib
import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def open_everything(target: dict[str, Any]) -> str:
    opened: list[int] = []
    with contextlib.suppress(OSError):
        while len(opened) < 500:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    return f"it has {'far too many' if len(opened) > 200 else 'few'} files"
