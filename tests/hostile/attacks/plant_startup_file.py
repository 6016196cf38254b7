"""A .pth file in the person's own site-packages, which every Python of theirs runs."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_startup_file(world: dict[str, Any]) -> str:
    site = Path(world["home"], ".local", "lib", "site-packages")
    site.mkdir(parents=True)
    (site / "planted.pth").write_text("import planted\n")
    return "planted"
