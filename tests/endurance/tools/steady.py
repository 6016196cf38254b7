"""What agents call all day: short calls, long ones that are aborted, output, questions and programs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import time

from toolcell import ToolContext, ToolError, tool

LINE = "0123456789abcdef" * 8


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool
async def later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@tool
def length(text: str) -> int:
    return len(text)


@tool
def prints(lines: int) -> str:
    for n in range(lines):
        print(n, LINE)
        logging.getLogger("steady").warning("line %d", n)
    return "printed"


@tool
def long(size: int) -> str:
    """Return more than the model reads, so that it is stored."""
    return (LINE + "\n") * (size // (len(LINE) + 1))


@tool
def fails() -> None:
    raise ToolError("no such thing")


@tool
def tells(context: ToolContext) -> str:
    for n in range(20):
        context.progress(n, 20, "on the way")
        context.update(f"{n} of 20")
        context.metadata(title="tells", at=n)
    return "told"


@tool
async def asks(context: ToolContext) -> str:
    await context.ask("May I?")
    return "allowed"


@tool
async def requests(context: ToolContext, number: int) -> object:
    return await context.request("double", number=number)


@tool
async def executes(context: ToolContext) -> str:
    return (await context.exec("echo", "done")).stdout.strip()


@tool
def leaves() -> str:
    """Return while a process goes on."""
    subprocess.Popen(["sleep", "60"])
    return "left"


@tool
def patient(context: ToolContext) -> None:
    context.update("here")
    time.sleep(60)


@tool
async def awaiting(context: ToolContext) -> None:
    context.update("here")
    await asyncio.sleep(60)


@tool
def deaf(context: ToolContext) -> None:
    """Stop only when killed, with a child."""
    signal.signal(signal.SIGRTMIN + 1, signal.SIG_IGN)
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    context.update("here")
    time.sleep(60)
