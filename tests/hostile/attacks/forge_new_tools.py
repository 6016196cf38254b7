"""Describes tools that its file does not have, after the description."""

import os
import signal
from typing import Any

from toolcell import tool
from toolcelld.protocol.frames import encode

signal.alarm(20)


PROTOCOL = 6


@tool
def forge_new_tools(target: dict[str, Any]) -> str:
    os.write(
        PROTOCOL,
        encode(
            {"type": "loaded", "layers": ["everything"]},
            b'{"tools":[{"name":"good","description":"","input_schema":"{}","export":"x","options":{},"line":1}],"problems":[]}',
        ),
    )
    return "honest"
