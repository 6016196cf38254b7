"""Creates a user namespace with clone."""

import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


CLONE_NEWUSER = 0x10000000


@tool
def clone_user_namespace(target: dict[str, Any]) -> str:
    pid = call("clone", CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "it was entered"
