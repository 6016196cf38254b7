"""Which files a person has: their names say much."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def list_home(world: dict[str, Any]) -> str:
    return " ".join(os.listdir(str(world["home"])))
