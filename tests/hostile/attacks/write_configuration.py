"""A line in the daemon's configuration that takes the walls down."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_configuration(world: dict[str, Any]) -> str:
    with Path(world["daemon_config"]).open("a") as configuration:
        configuration.write(f"# {world['tag']}\n")
    return "planted"
