"""Its memory in a file of the project, with whatever it was told."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def dump_core(world: dict[str, Any]) -> str:
    os.abort()
