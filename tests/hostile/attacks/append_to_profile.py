"""A line in .bashrc, which the person's next shell runs."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def append_to_profile(world: dict[str, Any]) -> str:
    with Path(world["home"], ".bashrc").open("a") as profile:
        profile.write("planted\n")
    return "planted"
