"""Leaves processes that outlive the call: forked twice, in sessions of their own."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


signal.signal(signal.SIGHUP, signal.SIG_IGN)


@tool
def daemonise(target: dict[str, Any]) -> str:
    for _ in range(10):
        if os.fork() == 0:
            signal.alarm(15)
            os.setsid()
            if os.fork() == 0:
                signal.alarm(15)
                with Path("pids").open("a") as pids:
                    pids.write(f"{os.getpid()}\n")
                time.sleep(15)
            os._exit(0)
        os.wait()
    while len(Path("pids").read_text().split()) < 10:
        time.sleep(0.01)
    return "they live"
