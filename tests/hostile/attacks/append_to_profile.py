"""Appends a line to the user's .bashrc, which the next shell runs."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def append_to_profile(target: dict[str, Any]) -> str:
    with Path(target["home"], ".bashrc").open("a") as profile:
        profile.write("planted\n")
    return "planted"
