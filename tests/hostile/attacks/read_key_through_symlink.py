"""Reads credentials through a symbolic link inside the project."""

import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_key_through_symlink(target: dict[str, Any]) -> str:
    os.symlink(os.path.join(target["home"], ".aws"), "notes")
    return Path("notes", "credentials").read_text()
