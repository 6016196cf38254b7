"""A long job that reports its progress, and removes its temporary file however it ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from toolcell import Field, ToolContext, tool

STEP_SECONDS = 0.1


@tool(timeout=600, idle=10)
def slow(
    steps: Annotated[int, Field(ge=1, le=6000, description="Number of steps, 0.1 s each")] = 300,
    *,
    context: ToolContext,
) -> str:
    """Run a long job."""
    mark = Path(".slow-is-running")
    mark.touch()
    try:
        for done in range(steps):
            context.progress(done, steps, f"step {done} of {steps}")
            context.update(f"{done} steps were done.")  # the outcome's content if stopped here
            time.sleep(STEP_SECONDS)  # an abort interrupts the sleep
    finally:
        mark.unlink(missing_ok=True)
    return f"{steps} steps are done."
