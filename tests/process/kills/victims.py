"""Tool files whose calls wait in a given state, each with a child process.

They communicate with the test by files in one directory: `STATE.stands` when the state is reached, `go` to let all
of them return, `fill.PROCESS.STATE` to have that process take memory until its limit.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

__all__ = ["ECHO", "STANDING", "source"]

STANDING = ("starting", "running", "streaming", "asking", "aborting", "ending")
"""The files, named after the state; the waiting call is a second one of `running`."""

ECHO = """
import time
from toolcell import tool

@tool
def echo(n: int, seconds: float = 0) -> int:
    time.sleep(seconds)
    return n
"""

CHILD = """
import os, sys, time
hoard = []
for _ in range(12000):
    time.sleep(0.005)
    while os.path.exists(sys.argv[1]) and len(hoard) < 256:
        hoard.append(bytearray(1 << 22))
"""
"""It exits by itself after a minute, and takes a gigabyte at most."""

SOURCE = """
    import asyncio, atexit, contextlib, subprocess, sys, time
    from pathlib import Path
    from toolcell import ToolContext, tool

    STATE = {state!r}
    HERE = Path({where!r})
    CHILD = {child!r}

    def start_child():
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", CHILD, str(HERE / f"fill.grandchild.{{STATE}}")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )

    def stands():
        (HERE / f"{{STATE}}.part").touch()
        (HERE / f"{{STATE}}.part").rename(HERE / f"{{STATE}}.stands")

    def may_go():
        hoard = []
        while (HERE / f"fill.worker.{{STATE}}").exists() and len(hoard) < 256:
            hoard.append(bytearray(1 << 22))
        return (HERE / "go").exists()

    def stand_still():
        stands()
        while not may_go():
            time.sleep(0.005)

    @contextlib.contextmanager
    def with_a_child():
        child = start_child()
        try:
            yield
        finally:
            child.kill()
            child.wait()

    if STATE == "starting" and (HERE / "gate").exists():
        with with_a_child():
            stand_still()

    @tool
    async def {state}(ctx: ToolContext, n: int, here: bool = True) -> int:
        if not here or STATE == "starting":
            return n
        if STATE == "ending":
            start_child()
            stands()
            while not (HERE / "end").exists():
                await asyncio.sleep(0.005)
            atexit.register(stand_still)
            return n
        with with_a_child():
            stands()
            if STATE == "asking":
                asked = asyncio.ensure_future(ctx.ask("go on?"))
                while not may_go():
                    await asyncio.sleep(0.005)
                await asked
                return n
            while not may_go():
                if STATE == "streaming":
                    print("x" * 1000, flush=True)
                try:
                    await asyncio.sleep(0.005)
                except asyncio.CancelledError:
                    (HERE / "aborted").touch()
        return n
"""


def source(state: str, where: Path) -> str:
    """The source of one state's file."""
    return textwrap.dedent(SOURCE).format(state=state, where=str(where), child=CHILD)
