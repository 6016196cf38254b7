"""Writes a line to the daemon's configuration that turns confinement off."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_configuration(target: dict[str, Any]) -> str:
    with Path(target["daemon_config"]).open("a") as configuration:
        configuration.write(f"# {target['tag']}\n")
    return "planted"
