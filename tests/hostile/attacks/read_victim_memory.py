"""A secret in the memory of another program."""

import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_victim_memory(world: dict[str, Any]) -> str:
    with open(f"/proc/{world['victim']}/maps") as maps:
        stack = next(line for line in maps if "[stack]" in line)
    start, end = (int(part, 16) for part in stack.split()[0].split("-"))
    with open(f"/proc/{world['victim']}/mem", "rb") as memory:
        memory.seek(start)
        return memory.read(end - start)[-8000:].decode(errors="replace")
