"""Its cell's failure, to have the daemon judge itself."""

import os
import signal
from typing import Any

from toolcell import tool
from toolcelld.frames import encode

signal.alarm(20)


PROTOCOL = 4


@tool
def forge_failure(world: dict[str, Any]) -> str:
    os.write(PROTOCOL, encode({"type": "failed", "message": "no walls"}, b""))
    return "honest"
