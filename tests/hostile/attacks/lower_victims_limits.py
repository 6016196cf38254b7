"""Lowers the limits of another process, so that it can open no file."""

import resource
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def lower_victims_limits(target: dict[str, Any]) -> str:
    resource.prlimit(target["victim"], resource.RLIMIT_NOFILE, (3, 3))
    return "lowered"
