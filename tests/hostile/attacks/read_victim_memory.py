"""Reads the memory of another program in /proc."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_victim_memory(target: dict[str, Any]) -> str:
    with open(f"/proc/{target['victim']}/maps") as maps:
        stack = next(line for line in maps if "[stack]" in line)
    start, end = (int(part, 16) for part in stack.split()[0].split("-"))
    with open(f"/proc/{target['victim']}/mem", "rb") as memory:
        memory.seek(start)
        return memory.read(end - start)[-8000:].decode(errors="replace")
