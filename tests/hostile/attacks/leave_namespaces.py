"""Enters the namespaces of another process."""

import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def leave_namespaces(target: dict[str, Any]) -> str:
    call("setns", os.pidfd_open(target["victim"]), 0x00020000 | 0x40000000)
    return "they were left"
