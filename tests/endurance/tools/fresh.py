"""A process of its own for each call."""

from __future__ import annotations

import time

from toolcell import ToolContext, tool


@tool(isolation="call")
def add(a: int, b: int) -> int:
    return a + b


@tool(isolation="call")
def patient(context: ToolContext) -> None:
    context.update("here")
    time.sleep(60)
