"""Overflows its worker's stack."""

import signal
import sys
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def overflow_stack(target: dict[str, Any]) -> str:
    sys.setrecursionlimit(10**9)

    def deeper(value: object) -> object:
        return deeper([value])

    deeper(0)
    return "unreachable"
