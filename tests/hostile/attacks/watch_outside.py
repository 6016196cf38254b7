"""Watches a directory outside the project."""

import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


@tool
def watch_outside(target: dict[str, Any]) -> str:
    watcher = checked(libc.inotify_init1(0))
    checked(libc.inotify_add_watch(watcher, target["outside"].encode(), 0xFFF))
    return "it watches"
