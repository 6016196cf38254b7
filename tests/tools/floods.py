"""Ways to say far too much. All of them end by themselves."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

from toolcell import ToolContext, tool

MIB = 2**20
LINE = "0123456789abcdef" * 8 + "\n"  # 129 bytes: no power of two, so that every cut falls elsewhere


def flood(size: int) -> str:
    """That many bytes of lines."""
    return (LINE * (size // len(LINE) + 1))[:size]


@tool(name="prints")
def prints(size: int, piece: int = MIB) -> str:
    """Print so many bytes, in pieces."""
    text = flood(piece)
    for start in range(0, size, piece):
        sys.stdout.write(text[: size - start])
    return "printed"


@tool(name="prints_lines")
def prints_lines(count: int) -> str:
    """Print so many lines, one by one."""
    line = LINE[:-1]
    for _ in range(count):
        print(line)
    return "printed"


@tool(name="writes")
def writes(size: int, descriptor: int = 1) -> str:
    """Write so many bytes past Python's own buffers."""
    data = flood(MIB).encode()
    while size:
        size -= os.write(descriptor, data[:size])
    return "written"


@tool(name="has_a_child_print")
def has_a_child_print(size: int) -> str:
    """Have a child print so many bytes, and wait for it."""
    subprocess.run(["head", "-c", str(size), "/dev/zero"], check=True)
    return "printed by a child"


@tool(name="leaves_a_child_printing")
def leaves_a_child_printing() -> str:
    """Return while a child goes on printing, until it is killed."""
    subprocess.Popen(["yes"])
    return "returned"


@tool(name="returns_lines", memory="2GiB")  # it makes a gigabyte of text
def returns_lines(count: int) -> str:
    """Return so many lines, made without a second copy."""
    return LINE * count


@tool(name="updates")
def updates(count: int, context: ToolContext) -> str:
    """Show so many partial results."""
    for number in range(count):
        context.update(f"update {number} " + "x" * 1000)
    return "updated"


@tool(name="progresses")
def progresses(count: int, context: ToolContext) -> str:
    """Show so many steps."""
    for number in range(count):
        context.progress(number + 1, count, "m" * 100_000)
    return "progressed"


@tool(name="sets_metadata")
def sets_metadata(count: int, context: ToolContext) -> str:
    """Set so many values, over and over, and one that is far too large."""
    for number in range(count):
        context.metadata(f"step {number}", number=number, same="x" * 1000)
    context.metadata(large="x" * MIB)
    return "set"


@tool(name="logs")
def logs(size: int, piece: int, context: ToolContext) -> str:
    """Log so many bytes, in pieces."""
    text = flood(piece).replace("\n", " ")
    for _ in range(size // piece):
        context.log.warning("%s", text)
    logging.getLogger("elsewhere").error("the last line")
    return "logged"


@tool(name="echo")
def echo(text: str) -> str:
    """Say it back."""
    return text
