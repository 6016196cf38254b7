"""What crashes and what passes a limit. Every session has a copy, and a good call follows each bad one."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from toolcell import tool

MIB = 2**20
SECONDS_MAX = 20


@tool
def well() -> str:
    return "well"


@tool
def exits() -> None:
    os._exit(3)


@tool
def faults() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@tool(memory="96MiB")
def hoards() -> None:
    held: list[bytearray] = []
    for _ in range(30):
        held.append(bytearray(os.urandom(1) * 10 * MIB))
        time.sleep(0.01)
    time.sleep(SECONDS_MAX)


@tool(processes=16)
def forks() -> None:
    with suppress(BlockingIOError):  # of the kernel, where the daemon has not looked yet
        for _ in range(100):
            if os.fork() == 0:
                time.sleep(SECONDS_MAX)
                os._exit(0)
            time.sleep(0.001)
    time.sleep(SECONDS_MAX)


@tool(cpu=0.2)
def spins() -> None:
    while time.process_time() < SECONDS_MAX:
        pass


@tool(timeout=0.3)
def late() -> None:
    time.sleep(SECONDS_MAX)
