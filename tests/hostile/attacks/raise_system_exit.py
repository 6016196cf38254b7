"""The end of its worker, as if all were well."""

import signal
import sys
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def raise_system_exit(world: dict[str, Any]) -> str:
    sys.exit(0)
