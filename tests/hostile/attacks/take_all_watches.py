"""Finds how many of the files that all programs of the user may watch it can watch by one instance of inotify."""

import os
import signal
from pathlib import Path
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def take_all_watches(target: dict[str, Any]) -> str:
    os.close(checked(libc.inotify_init1(os.O_CLOEXEC)))
    machine, own = (
        int(Path("/proc/sys", name).read_text())
        for name in ("fs/inotify/max_user_watches", "user/max_inotify_watches")
    )
    return f"it may watch {own} of {machine} files: {'most' if own > machine // 2 else 'a part'}"
