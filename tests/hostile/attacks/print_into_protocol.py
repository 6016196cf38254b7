"""Prints text into the protocol's descriptor."""

import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def print_into_protocol(target: dict[str, Any]) -> str:
    os.dup2(6, 1)
    print("honest", flush=True)
    return "honest"
