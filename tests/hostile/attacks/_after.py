"""For tools that work on after their result: the result written early, and the proof of work."""

import os
import time
from pathlib import Path

from toolcelld.worker.calling.report import Usage, WorkerReport

REPORTS = 6


def report_early() -> None:
    """Send the result of the worker's first call."""
    frames = WorkerReport.from_text("ok", "early").frames(
        1, Usage(cpu_seconds=0.0, memory_peak_bytes=0, threads=0)
    )
    os.write(REPORTS, b"".join(frames))


def work(seconds: float) -> None:
    """Use the processor for so long, and leave the proof."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    Path("worked").touch()
