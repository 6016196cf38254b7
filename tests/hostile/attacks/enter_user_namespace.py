"""Enters a user namespace, in which it is root and reaches most of the kernel."""

import os
import signal
from typing import Any

from _kernel import checked, libc

from toolcell import tool

signal.alarm(20)


CLONE_NEWUSER = 0x10000000


@tool
def enter_user_namespace(target: dict[str, Any]) -> str:
    if os.fork() == 0:
        signal.alarm(10)
        status = 1
        try:
            checked(libc.unshare(CLONE_NEWUSER))
            status = 0
        finally:
            os._exit(status)
    if os.wait()[1]:
        raise PermissionError("it was not entered")
    return "it was entered"
