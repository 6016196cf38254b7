"""Watches every file that is opened, by fanotify."""

import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def watch_everything(target: dict[str, Any]) -> str:
    FAN_REPORT_FID = 0x200
    os.close(call("fanotify_init", FAN_REPORT_FID, os.O_RDONLY))
    return "it watches"
