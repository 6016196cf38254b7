"""The end of its worker in the middle of a call, with status 0."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def exit_at_once(world: dict[str, Any]) -> str:
    os._exit(0)
