"""Waits in several ways; each says that it is there, and ends by itself after half a minute."""

from __future__ import annotations

import asyncio
import collections
import itertools
import subprocess

from toolcell import tool


@tool
async def stops(kind: str, mark: str = "30") -> str:
    """Wait in that way."""
    print("there", flush=True)
    if kind == "listens":
        await asyncio.sleep(30)
    elif kind == "half":
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "half"
    elif kind == "child":
        child = await asyncio.create_subprocess_exec("sleep", mark)
        try:
            await child.wait()
        finally:
            child.kill()
            await child.wait()
    elif kind == "children":
        await asyncio.to_thread(subprocess.Popen, ["sleep", mark], start_new_session=True)
        await asyncio.sleep(30)
    elif kind == "deaf":
        collections.deque(itertools.repeat(0, 60 * 10**8), maxlen=0)  # never looks at signals
    return "whole"
