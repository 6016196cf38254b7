"""What another tool keeps in its temporary directory."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_neighbour_scratch(world: dict[str, Any]) -> str:
    return Path(world["neighbour_scratch"]).read_text()
