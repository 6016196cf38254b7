"""Lists the user's home directory."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def list_home(target: dict[str, Any]) -> str:
    return " ".join(os.listdir(str(target["home"])))
