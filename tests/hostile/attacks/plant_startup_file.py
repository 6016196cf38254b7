"""Plants a .pth file in the user's site-packages, which every Python of the user runs."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_startup_file(target: dict[str, Any]) -> str:
    site = Path(target["home"], ".local", "lib", "site-packages")
    site.mkdir(parents=True)
    (site / "planted.pth").write_text("import planted\n")
    return "planted"
