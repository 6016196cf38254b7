"""Returns a value that raises when it is encoded."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


class Strange(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


@tool
def return_unshowable(target: dict[str, Any]) -> object:
    return {"a": Strange("x")}
