"""Plants a hook in the project's repository, which runs with the user's next commit."""

import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def plant_git_hook(target: dict[str, Any]) -> str:
    hook = Path(".git", "hooks", "pre-commit")
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    return "planted"
