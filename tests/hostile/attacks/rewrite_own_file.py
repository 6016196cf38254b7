"""Rewrites its own source, so that the next call runs other code."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def rewrite_own_file(target: dict[str, Any]) -> str:
    with Path(__file__).open("a") as source:
        source.write("# planted\n")
    return "planted"
