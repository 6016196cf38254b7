"""What the walls hide, by taking the mounts off again."""

import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


MNT_DETACH = 2


@tool
def unmount_view(world: dict[str, Any]) -> str:
    checked(libc.umount2(world["outside"].encode(), MNT_DETACH))
    return "taken off"
