"""Runs a program from memory that was never a file."""

import os
import signal
import subprocess
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def run_from_memory(target: dict[str, Any]) -> str:
    program = os.memfd_create("program")
    with open("/bin/true", "rb") as file:
        os.write(program, file.read())
    subprocess.run([f"/proc/self/fd/{program}"], pass_fds=[program], check=True, timeout=10)
    return "it ran"
