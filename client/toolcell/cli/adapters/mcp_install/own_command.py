"""A host's own command for its configuration, which knows better than we do where that is.

Visual Studio Code has profiles, and where its window is on another machine than the shell (WSL, SSH, a container), the
file is not the one that lies here. `code --add-mcp` is asked of a program that says that it has it: an older one would
open a window, and another program may have the name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from toolcell._printable import json_text

__all__ = ["OPTION", "add", "find"]

OPTION = "--add-mcp"
HELP_SECONDS = 10.0
ADD_SECONDS = 60.0  # it starts a program of some size, once


def find(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the path of a program on the PATH that has the option; None if there is none."""
    program = shutil.which(name, path=environment.get("PATH", ""))
    # A PATH with relative directories would have a project choose the program.
    if program is None or not os.path.isabs(program):
        return None
    try:
        said = subprocess.run(
            [program, "--help"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=HELP_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return program if OPTION.encode() in said else None


def add(program: str, name: str, entry: Mapping[str, Any]) -> bool:
    """Have the program add a server, or replace it; return whether it says that it did."""
    try:
        done = subprocess.run(
            [program, OPTION, json_text({"name": name, **entry})],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=ADD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
