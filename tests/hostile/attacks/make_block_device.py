"""Makes a device node of its own for the disk."""

import os
import signal
import stat
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def make_block_device(target: dict[str, Any]) -> str:
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(254, 0))
    return "made"
