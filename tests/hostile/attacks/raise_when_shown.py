"""Raises an exception that raises again when it is shown."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


class Unshowable(Exception):
    def __str__(self) -> str:
        raise self

    __repr__ = __str__


@tool
def raise_when_shown(target: dict[str, Any]) -> str:
    raise Unshowable
