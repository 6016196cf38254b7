"""What FastMCP, the MCP SDK and Toolcell do with the same file of tools: `python -m tests.bench.comparison`.

All three are MCP servers on stdio with the same client; Toolcell's is `toolcell mcp` with a daemon. Each trial has a
server of its own. What is printed is the table of docs/comparison.md; times are medians, and those of calls are measured
in turn, because machines drift.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from tests.bench.contenders import mcp_call, mcp_client, served

__all__ = ["KINDS", "SOURCE", "TRIALS", "main"]

SOURCE: Final = '''
import os
import subprocess
import time

{imported}

server = {server}("comparison")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def waits() -> None:
    """Wait for a program that does not end."""
    subprocess.run(["sleep", "{marker}"])


@server.tool()
def computes() -> None:
    """Compute for three seconds."""
    until = time.monotonic() + 3
    while time.monotonic() < until:
        pass


@server.tool()
def crashes() -> None:
    """End the process, as a fault in a library does."""
    os._exit(3)


@server.tool()
def reads() -> str:
    """Read a key of the user's environment."""
    return os.environ.get("COMPARISON_KEY", "nothing")


if __name__ == "__main__":
    server.run({options})
'''
IMPORTS: Final = {
    "FastMCP": ("from fastmcp import FastMCP", "FastMCP", "show_banner=False"),
    "MCP SDK": ("from mcp.server.mcpserver import MCPServer", "MCPServer", ""),
    "Toolcell": ("from fastmcp import FastMCP", "FastMCP", ""),
}
KINDS: Final = tuple(IMPORTS)
REPEATS: Final = 3
ROUNDS, ROUND_CALLS = 20, 25
LOOK_SECONDS: Final = 0.005
GONE_SECONDS_MAX: Final = 10.0
ANSWER_SECONDS_MAX: Final = 5.0


@contextlib.asynccontextmanager
async def serving(kind: str, marker: str) -> AsyncGenerator[Any]:
    """Start a server of a kind, and connect a client to it."""
    imported, server, options = IMPORTS[kind]
    source = SOURCE.format(imported=imported, server=server, marker=marker, options=options)
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as place, contextlib.ExitStack() as stack:
        directory = Path(place)
        if kind != "Toolcell":
            (directory / "server.py").write_text(source)
            command = [sys.executable, str(directory / "server.py")]
        else:
            tools = directory / "project" / ".toolcell" / "tools"
            tools.mkdir(parents=True)
            (tools / "comparison.py").write_text(source)
            socket = stack.enter_context(served(directory))
            (tools / "add.py").unlink()  # the other benches' own
            project = ["-C", str(directory / "project")]
            command = [sys.executable, "-P", "-m", "toolcell.cli", *project, "--socket", socket, "mcp"]
        async with mcp_client(command, directory) as client:
            await mcp_call(client)(1)
            yield client


def running(marker: str) -> bool:
    """Whether a process has the marker as its argument."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and marker.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                return True
    return False


async def until(condition: Callable[[], bool], seconds_max: float) -> float | None:
    """Wait for a condition; return the seconds that it took, None if it did not come."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > seconds_max:
            return None
        await asyncio.sleep(LOOK_SECONDS)
    return time.perf_counter() - began


async def cancelled(client: Any, marker: str) -> float | None:
    """Cancel a call that waits for a program; return when the program is gone."""
    call = asyncio.create_task(client.call_tool("waits", {}))
    assert await until(lambda: running(marker), ANSWER_SECONDS_MAX) is not None
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    return await until(lambda: not running(marker), GONE_SECONDS_MAX)


async def beside(client: Any, marker: str) -> float | None:
    """Return how long a call takes while another one computes."""
    call = asyncio.create_task(client.call_tool("computes", {}))
    await asyncio.sleep(0.5)  # it has begun; nothing says so
    began = time.perf_counter()
    await mcp_call(client)(1)
    took = time.perf_counter() - began
    await call
    return took


async def after_crash(client: Any, marker: str) -> float | None:
    """Return how long a call takes after one whose tool ended its process; None if there is no answer."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await client.call_tool("crashes", {})
    began = time.perf_counter()
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await mcp_call(client)(1)
    except Exception:  # noqa: BLE001  whatever a client says to a server that is gone
        return None
    return time.perf_counter() - began


async def key(client: Any, marker: str) -> float | None:
    """Return 1 if a tool reads a key of the environment, else None."""
    result = await client.call_tool("reads", {})
    return 1.0 if "hunter2" in result.content[0].text else None


TRIALS: Final[dict[str, Callable[[Any, str], Awaitable[float | None]]]] = {
    "A call is cancelled: the program that it started is gone": cancelled,
    "A call beside a tool that computes": beside,
    "A call after a tool that ended its process": after_crash,
    "A tool reads a key of the environment": key,
}


async def calls_in_turn() -> dict[str, float]:
    """Return the median of a warm call of each kind, in seconds."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    async with contextlib.AsyncExitStack() as stack:
        calls = {kind: mcp_call(await stack.enter_async_context(serving(kind, "0"))) for kind in KINDS}
        for _ in range(ROUNDS):
            for kind in random.sample(KINDS, len(KINDS)):
                for number in range(ROUND_CALLS):
                    began = time.perf_counter()
                    await calls[kind](number)
                    times[kind].append(time.perf_counter() - began)
    return {kind: statistics.median(found) for kind, found in times.items()}


async def trial(name: str, kind: str, number: int) -> float | None:
    """Do one trial with a server of its own; None also if the server takes its client with it."""
    marker = f"{7000 + number}.{os.getpid()}"
    found: list[float | None] = []
    with contextlib.suppress(
        BaseExceptionGroup
    ):  # raised by the client as it closes, of a server that is gone
        async with serving(kind, marker) as client:
            found.append(await TRIALS[name](client, marker))
    return found[0] if found else None


def _shown(name: str, found: list[float | None]) -> str:
    times = [seconds for seconds in found if seconds is not None]
    if TRIALS[name] is key:
        return "yes" if times else "no"
    if not times:
        return f"no, after {GONE_SECONDS_MAX:g} s" if TRIALS[name] is cancelled else "none"
    return f"{statistics.median(times) * 1000:.0f} ms" + (
        "" if len(times) == len(found) else f" ({len(times)} of {len(found)})"
    )


async def main() -> None:
    """Print the table."""
    os.environ["COMPARISON_KEY"] = "hunter2"
    print("| |", " | ".join(KINDS), "|\n|---|" + "---|" * len(KINDS))
    warm = await calls_in_turn()
    ratios = [f"{warm[kind] / warm['FastMCP']:.2f}" for kind in KINDS]
    print("| A warm call through the same MCP client, as a ratio |", " | ".join(ratios), "|")
    for name in TRIALS:
        found = {kind: [await trial(name, kind, number) for number in range(REPEATS)] for kind in KINDS}
        print(f"| {name} |", " | ".join(_shown(name, found[kind]) for kind in KINDS), "|", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
