"""An error in the hands of whoever describes it."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


class Unshowable(Exception):
    def __str__(self) -> str:
        raise self


raise Unshowable


@tool
def raise_at_import(world: dict[str, Any]) -> str:
    return "unreachable"
