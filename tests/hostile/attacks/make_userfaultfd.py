"""Creates a userfaultfd, which exploits use to stop the kernel in the middle of a copy."""

import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def make_userfaultfd(target: dict[str, Any]) -> str:
    UFFD_USER_MODE_ONLY = 1
    os.close(call("userfaultfd", os.O_CLOEXEC | UFFD_USER_MODE_ONLY))
    return "it was made"
