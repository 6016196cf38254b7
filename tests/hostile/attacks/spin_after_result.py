"""Writes its result itself, and goes on working, under no limit of a call."""

import signal
from typing import Any

from _after import report_early, work

from toolcell import tool

signal.alarm(20)


@tool
def spin_after_result(target: dict[str, Any]) -> str:
    report_early()
    work(3.0)
    return "late"
