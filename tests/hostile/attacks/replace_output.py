"""Nobody's output, in the place of standard output."""

import signal
import sys
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def replace_output(world: dict[str, Any]) -> str:
    sys.stdout = sys.stderr = None
    return "replaced"
