"""Doubles its own limits."""

import resource
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def raise_limits(target: dict[str, Any]) -> str:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard * 2, hard * 2))
    return "raised"
