"""A secret file, moved to a place where it may be read."""

import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def rename_in(world: dict[str, Any]) -> str:
    os.rename(os.path.join(world["outside"], "secret"), "mine")
    return Path("mine").read_text()
