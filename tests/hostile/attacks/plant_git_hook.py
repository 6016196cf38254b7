"""A hook in the project's repository, which the person runs with the next commit."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_git_hook(world: dict[str, Any]) -> str:
    hook = Path(".git", "hooks", "pre-commit")
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    return "planted"
