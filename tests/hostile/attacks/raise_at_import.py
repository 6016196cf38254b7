"""Raises an exception that raises again when it is described."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


class Unshowable(Exception):
    def __str__(self) -> str:
        raise self


raise Unshowable


@tool
def raise_at_import(target: dict[str, Any]) -> str:
    return "unreachable"
