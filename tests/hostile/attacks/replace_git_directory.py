"""Another .git with hooks of its own, in the place of the protected one."""

import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def replace_git_directory(world: dict[str, Any]) -> str:
    os.rename(".git", "git-of-old")
    hooks = Path(".git", "hooks")
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\n")
    return "planted"
