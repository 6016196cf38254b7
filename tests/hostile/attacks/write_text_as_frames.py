"""Writes text in the place of frames."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def write_text_as_frames(target: dict[str, Any]) -> str:
    os.write(6, b'{"type": "result", "kind": "ok"}\n' * 10)
    return "honest"
