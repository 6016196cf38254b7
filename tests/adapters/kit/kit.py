"""The tools that every agent is tested with; the file is the same for all of them.

`there` and `stopped` are files that a tool makes in the session's directory, so that a test sees what the agent does not:
that it began, and that its clean-up ran.
"""

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Literal, TextIO

from pydantic import BaseModel

from toolcell import Image, ToolContext, ToolError, tool

PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)  # one transparent pixel


class Line(BaseModel):
    sku: str
    count: int = 1


@tool(read_only=True)
def echo(text: str, style: Literal["plain", "loud"] = "plain") -> str:
    """Say it again."""
    return text.upper() if style == "loud" else text


@tool(read_only=True)
def whoami(context: ToolContext) -> dict[str, str]:
    """Who calls, and from where."""
    return {
        "session_id": context.session_id,
        "message_id": context.message_id,
        "call_id": context.call_id,
        "agent": context.agent,
        "agent_name": context.agent_name,
        "directory": str(context.directory),
    }


@tool
def order(lines: list[Line], side: Literal["buy", "sell"]) -> str:
    """Order something: arguments with a model, an enum and a list."""
    return f"{side} {sum(line.count for line in lines)}"


@tool
def fails(why: str) -> str:
    """Fail, in words for the model."""
    raise ToolError(f"It did not work: {why}")


@tool
def picture() -> Image:
    """A picture of one pixel."""
    return Image(data=PICTURE)


@tool
def long(lines: int) -> str:
    """So many lines of a hundred characters."""
    return "\n".join(f"{n:08d} " + "x" * 90 for n in range(lines))


@tool
def steps(count: int, context: ToolContext) -> str:
    """Tell how far it is."""
    for done in range(1, count + 1):
        context.progress(done, count, f"step {done}")
        time.sleep(0.1)  # longer than what is joined into one event
    return f"{count} steps"


@tool
async def asks(path: str, context: ToolContext) -> str:
    """Ask before it does something."""
    await context.ask(f"Write {path}?", permission="write", patterns=[path], always=[path])
    return f"wrote {path}"


def hold(path: Path) -> TextIO:
    """A file that is locked until this process has let go of it, or is gone: the next holder of the lock knows that."""
    held = path.open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    held.write(str(os.getpid()))
    held.flush()
    return held


@tool
def waits(name: str, context: ToolContext) -> str:
    """Wait for ever; listens to the abort."""
    directory = Path(context.directory)
    held = hold(directory / f"{name}.there")
    try:
        time.sleep(600)
    finally:
        (directory / f"{name}.stopped").touch()
    return f"never {held.name}"


@tool
def deaf(name: str, context: ToolContext) -> str:
    """Wait for ever, and ignore aborts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    held = hold(Path(context.directory) / f"{name}.there")
    while not held.closed:
        try:
            time.sleep(600)
        except BaseException:  # noqa: BLE001  that is the fault
            continue
    return "never"


@tool(timeout=1)
def overdue() -> str:
    """Take longer than it may."""
    time.sleep(600)
    return "never"


@tool
def crash() -> str:
    """Die in the middle."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return "never"
