"""Tools that do what a page has to show."""

from __future__ import annotations

import os
import signal
import time
from typing import Annotated, Literal

from toolcell import ToolContext, tool


@tool(name="count", read_only=True)
def count(
    text: Annotated[str, "The text to count in."],
    unit: Literal["words", "lines"] = "words",
    twice: bool = False,
) -> str:
    """Count the words or lines of a text."""
    found = len(text.split() if unit == "words" else text.splitlines())
    return str(found * 2 if twice else found)


@tool(name="wait")
def wait(context: ToolContext, seconds: float = 60.0) -> str:
    """Tell that it waits, and wait."""
    context.progress(1, 2, "it waits now")
    time.sleep(seconds)
    return "It has waited."


@tool(name="fail")
def fail(message: str = "no reason") -> str:
    """Fail with a message."""
    raise ValueError(message)


@tool(name="die")
def die() -> str:
    """End the process by SIGSEGV."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""


@tool(name="inquire")
async def inquire(context: ToolContext) -> str:
    """Ask for a permission and three values."""
    await context.ask("Delete <b>\u202eall?", permission="delete", patterns=["/x"], always=["/*"])
    color = await context.ui.select("Which one?", ["red", "blue"])
    name = await context.ui.input("Your name?", "nobody")
    return f"{color} {name} {await context.ui.confirm('Sure?')}"


@tool(name="print_much")
def print_much(lines: int = 20_000) -> str:
    """Return more than is shown."""
    return "\n".join(f"line {number} <b>" for number in range(lines))
