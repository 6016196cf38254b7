"""Turns address randomisation off, as exploits want it."""

import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def turn_randomness_off(target: dict[str, Any]) -> str:
    ADDR_NO_RANDOMIZE = 0x0040000
    before = call("personality", ADDR_NO_RANDOMIZE)
    call("personality", before)
    return "it is off"
