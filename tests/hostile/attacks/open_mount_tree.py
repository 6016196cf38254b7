"""Copies the tree of mounts to a descriptor."""

import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def open_mount_tree(target: dict[str, Any]) -> str:
    call("open_tree", -100, b"/", 1)
    return "it is open"
