"""A worker of its own for each session, which keeps its state through aborts."""

from __future__ import annotations

import time

from toolcell import ToolContext, tool

calls = 0


@tool(isolation="session")
def count() -> int:
    global calls
    calls += 1
    return calls


@tool(isolation="session")
def patient(context: ToolContext) -> None:
    context.update("here")
    time.sleep(60)
