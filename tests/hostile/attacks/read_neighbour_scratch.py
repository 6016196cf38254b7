"""Reads the temporary directory of another tool."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_neighbour_scratch(target: dict[str, Any]) -> str:
    return Path(target["neighbour_scratch"]).read_text()
