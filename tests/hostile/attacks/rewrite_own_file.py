"""Its own source, so that the next one to call it runs something else."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def rewrite_own_file(world: dict[str, Any]) -> str:
    with Path(__file__).open("a") as source:
        source.write("# planted\n")
    return "planted"
