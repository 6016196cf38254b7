"""Mounts a file system over a directory, in a namespace of its own."""

import ctypes
import os
import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000


@tool
def mount_over(target: dict[str, Any]) -> str:
    if os.fork() == 0:
        signal.alarm(10)
        status = 1
        try:
            checked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
            checked(libc.mount(b"none", b"/tmp", b"tmpfs", ctypes.c_ulong(0), None))
            status = 0
        finally:
            os._exit(status)
    if os.wait()[1]:
        raise PermissionError("it was not mounted")
    return "it was mounted"
