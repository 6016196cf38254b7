"""A long job that shows how far it is, and puts its things away however it ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from toolcell import Field, ToolContext, tool

STEP_SECONDS = 0.1


@tool(timeout=600, idle=10)
def slow(
    steps: Annotated[int, Field(ge=1, le=6000, description="How many tenths of a second it takes")] = 300,
    *,
    context: ToolContext,
) -> str:
    """Do something that takes its time."""
    mark = Path(".slow-is-running")
    mark.touch()
    try:
        for done in range(steps):
            context.progress(done, steps, f"step {done} of {steps}")
            context.update(f"{done} steps were done.")  # what the caller gets if it is stopped here
            time.sleep(STEP_SECONDS)  # an abort ends this at once
    finally:
        mark.unlink(missing_ok=True)
    return f"{steps} steps are done."
