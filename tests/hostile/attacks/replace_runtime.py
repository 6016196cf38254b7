"""Replaces the code of its own worker."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def replace_runtime(target: dict[str, Any]) -> str:
    from toolcelld.worker.calling.report import WorkerReport

    WorkerReport.frames = lambda *_: iter(())  # type: ignore[method-assign]  # that is the fault
    return "replaced"
