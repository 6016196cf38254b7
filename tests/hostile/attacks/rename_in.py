"""Moves a secret file into the project, where it may be read."""

import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def rename_in(target: dict[str, Any]) -> str:
    os.rename(os.path.join(target["outside"], "secret"), "mine")
    return Path("mine").read_text()
