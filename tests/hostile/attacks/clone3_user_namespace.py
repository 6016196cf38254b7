"""Creates a user namespace with clone3, whose flags no filter can read."""

import ctypes
import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


CLONE_NEWUSER = 0x10000000


@tool
def clone3_user_namespace(target: dict[str, Any]) -> str:
    arguments = (ctypes.c_uint64 * 8)(CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    pid = call("clone3", arguments, ctypes.sizeof(arguments))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "it was entered"
